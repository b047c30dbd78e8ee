"""Functions of all parties' records that are a sum over records: what `cape`, `conv`, `local` and `central` compute.

A function says what a party contributes, how far one record can move the total, and what is made of the noisy total.
Since it is a sum over records, parties of unequal size count by their records. How the noise gets in is the method's
business, so that methods can be compared on the same function.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from unspoken.arithmetic import sum_of_rows
from unspoken.data.block import Block
from unspoken.learners.network import Network
from unspoken.learners.second_moments import LEAST_LENGTH, Reshaping, SecondMoments, best_balance
from unspoken.learners.softmax_steps import SoftmaxSteps, chosen_steps
from unspoken.learners.solving import Repair, solve
from unspoken.methods.base import (
    Contribution,
    Conversation,
    Method,
    PartyContext,
    PartyRequest,
    Request,
    Total,
)
from unspoken.methods.mechanisms import Mechanism
from unspoken.methods.parameters import LARGEST_WEIGHT, NO_PARAMETERS, Parameters, Range, weights_within_bounds
from unspoken.methods.plan import DeclaredSum, Plan
from unspoken.methods.planning import make_plan
from unspoken.methods.releases import LinearModel, NetworkModel, Release, Statistics
from unspoken.privacy.gaussian import mu_for
from unspoken.privacy.integer import LARGEST_EPSILON
from unspoken.study import Column, Section, Study
from unspoken.types import Floats

FunctionName = Literal[
    "linear-regression", "logistic-regression", "discriminant", "softmax", "network", "mean", "histogram"
]

_TASKS: dict[str, tuple[FunctionName, ...]] = {
    "regression": ("linear-regression",),
    "classification": ("logistic-regression", "discriminant", "softmax", "network"),
    "statistics": ("mean", "histogram"),
}
_SHARE_OF_SCALE = 1.0 / 9.0
"""Of the budget, for the mean and mean square: a tenth of what there is in all"""
_SOFTMAX_CLIP = 0.25
_NETWORK_STEPS, _NETWORK_CLIP = 20, 1.0


class FunctionOptions(Section):
    """The keys of [method] that say which function is computed, and how."""

    function: FunctionName | None = Field(
        None,
        description='"linear-regression" (of a regression), "logistic-regression", "discriminant", "softmax" or '
        '"network" (of a classification), "mean" or "histogram" (of statistics)',
    )
    coefficients: float = Field(
        2.0, gt=0.0, le=1e6, description="a guess of the norm of the model for records of norm 1, above 0, such as 2.0"
    )
    reshape: bool = Field(
        True, description="true or false (true: the mean is asked for first, to make room for what tells records apart)"
    )
    repair: Repair = Field("ridge", description='"ridge", "adassp" or "none"')
    bins: int = Field(10, ge=2, le=10_000, description="the number of a histogram's bins for each number, from 2")
    hidden: int = Field(16, ge=1, le=10_000, description="the number of hidden units of a network, 1 or more")
    steps: int | None = Field(
        None, ge=1, le=10_000, description="the number of steps of softmax or a network, 1 or more"
    )
    clip: float | None = Field(None, gt=0.0, description="the largest norm of a record's gradient, above 0")
    score_noise: float = Field(
        0.7, gt=0.0, description="of softmax: how much noise its scores may have, above 0, such as 0.7"
    )
    learning_rate: float = Field(1.0, gt=0.0, description="of a network: the step size, above 0")
    seed: int = Field(0, ge=0, description="a whole number: the public seed of a network's first weights")


@dataclass(frozen=True)
class Ask:
    """What a function asks for: its total, or that of a part of it, with what parties need to know."""

    parameters: Floats | None = None
    part: str = "function"
    turn: int = 0
    """How often the part was asked for before"""


@dataclass(frozen=True)
class Part:
    """A smaller total that is asked for first, with a share of the budget."""

    name: str
    dimension: int
    sensitivity: float
    record_bound: float
    share: float


class Function(ABC):
    """A sum over records, and what is made of its noisy total."""

    dimension: int
    sensitivity: float
    """How far replacing one record moves the total, in L2 norm"""
    record_bound: float
    """No record contributes more, in L2 norm"""
    count = 1
    """How often it is computed"""
    notes: tuple[str, ...] = ()
    """What a careful reader of the promise should be told"""
    first: Part | None = None
    """What is asked for before the function itself"""

    def bound(self, records: int) -> float:
        """No party with so many records contributes more, in L2 norm."""
        return self.record_bound * records

    def parameters(self, part: str, turn: int) -> Parameters:
        """The numbers that come with the request for a part: none, unless the function needs some."""
        return NO_PARAMETERS

    def contribute(self, block: Block, parameters: Floats | None, part: str = "function") -> Contribution:
        """What each party of the block puts into the total, and how many records it has."""
        parties = zip(block.features, block.labels, block.counts, strict=True)
        if part == "function":
            rows = [self.of(features[:count], labels[:count], parameters) for features, labels, count in parties]
        else:
            rows = [self.first_of(features[:count]) for features, _, count in parties]
        return Contribution(np.stack(rows), block.counts[:, None])

    def first_of(self, features: Floats) -> Floats:
        """What is asked for first, of one party's records."""
        raise NotImplementedError

    @abstractmethod
    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        """The function of one party's records."""

    @abstractmethod
    def conclude(self) -> Generator[Ask, Total, Release]:
        """Ask for the function, each time with the parameters that it needs, and make the release of the totals."""


def function_for(study: Study, options: FunctionOptions) -> Function:
    """The function that the study asks for, or that fits its task."""
    fitting = _TASKS[study.task]
    name = options.function or fitting[0]
    if name not in fitting:
        listed = " or ".join(f'"{known}"' for known in fitting)
        raise study.error("method.function", f'is "{name}", but for the task "{study.task}" it should be {listed}')
    match name:
        case "linear-regression" | "logistic-regression":
            return LeastSquares(study, options)
        case "discriminant":
            return Discriminant(study, options)
        case "softmax":
            return Softmax(study, options)
        case "network":
            return NetworkGradient(study, options)
        case "mean":
            return Mean(study)
        case "histogram":
            return Histogram(study, options.bins)


class LeastSquares(Function):
    """Linear and logistic regression by the functional mechanism (capeFM, Sections 4.3 and H).

    Linear: the minimiser of the squared loss. Logistic: the Taylor polynomial of order 2 of the softmax loss at 0 has
    the gradient Σ(1/K − y)x and the Hessian XᵀX·(I/K − 11ᵀ/K²), so its minimiser is K times the least-squares solution
    for centred indicators; for two classes that is the polynomial of Zhang et al.
    """

    def __init__(self, study: Study, options: FunctionOptions) -> None:
        classes = None if study.task == "regression" else len(study.data.class_names)
        largest = 1.0 if classes is None else math.sqrt(1.0 - 1.0 / classes)
        balance = best_balance(classes or 1, largest, options.coefficients)
        self.moments = SecondMoments(study.data.dimension, 1.0, classes, balance)
        self.dimension, self.sensitivity = self.moments.dimension, self.moments.sensitivity
        self.record_bound = self.moments.record_bound
        if options.reshape:
            # Records at opposite ends, as far apart as can be, have the same square: it costs nothing.
            self.first = Part("scale", study.data.dimension + 1, 2.0, math.sqrt(2.0), _SHARE_OF_SCALE)
        self._study, self._options = study, options

    def first_of(self, features: Floats) -> Floats:
        """The sum of the records, and of their squares, scaled to norm 1."""
        unit = features / self._study.data.norm
        return np.append(sum_of_rows(unit), sum_of_rows(np.einsum("ij,ij->i", unit, unit)))

    def parameters(self, part: str, turn: int) -> Parameters:
        """A `Reshaping`. Divided by a length of at least `LEAST_LENGTH`, no record is too long for arithmetic."""
        if self.first is None or part != "function":
            return NO_PARAMETERS
        axis = Range(self.moments.features, -1.0, 1.0)
        return Parameters((axis, Range(1, 0.0, 1.0), Range(1, LEAST_LENGTH, 1.0)))

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        reshaping = None if parameters is None else Reshaping.from_parameters(parameters)
        return self.moments.of(features / self._study.data.norm, labels, reshaping)

    def conclude(self) -> Generator[Ask, Total, Release]:
        reshaping = None
        if self.first is not None:
            scale = yield Ask(part="scale")
            records = max(int(scale.exact[0]), 1)
            found = Reshaping.of(
                scale.noisy[:-1] / records, float(scale.noisy[-1]) / records, scale.noise_std / records
            )
            reshaping = Reshaping.from_parameters(self.parameters("function", 0).nearest(found.to_parameters()))
        total = yield Ask(None if reshaping is None else reshaping.to_parameters())
        second, mixed = self.moments.split(total.noisy)
        entry = total.noise_std / math.sqrt(2.0)
        solved = solve(self.moments, second, mixed, entry, int(total.exact[0]), self._options.repair)
        if reshaping is not None:
            solved = reshaping.undo(solved)
        weights = (self.moments.classes or 1) * solved.T / self._study.data.norm
        details = {"records": int(total.exact[0]), "noise_std_per_moment": entry}
        return LinearModel(weights, None if self.moments.classes is None else "softmax", details)


class Discriminant(Function):
    """Linear discriminant analysis: the classes' means and shares, and the scatter that they have in common.

    Beside the second moments with plain indicators, a record adds its class to the counts, scaled by γ = β²/2. That
    costs nothing: two records are furthest apart, by √2(1 + β²/2), with the same class; with different ones their
    squared distance is at most 2 + 2β² + 2γ², which is the same.
    """

    def __init__(self, study: Study, options: FunctionOptions) -> None:
        if not study.data.has_intercept:
            raise study.error("data.intercept", 'is false, but the function "discriminant" needs intercept = true')
        classes = len(study.data.class_names)
        balance = min(best_balance(classes, 1.0, options.coefficients), 1.0)
        self.moments = SecondMoments(study.data.dimension, study.data.norm, classes, balance, centred=False)
        self.weight_of_counts = balance**2 / 2.0
        self.dimension, self.sensitivity = self.moments.dimension + classes, self.moments.sensitivity
        self.record_bound = math.hypot(self.moments.record_bound, self.weight_of_counts)
        self._study, self._options = study, options

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        counts = np.bincount(labels, minlength=self.moments.outputs).astype(np.float64)
        return np.concatenate([self.moments.of(features, labels), self.weight_of_counts * counts])

    def conclude(self) -> Generator[Ask, Total, Release]:
        total = yield Ask()
        records, entry = max(int(total.exact[0]), 1), total.noise_std / math.sqrt(2.0)
        second, mixed = self.moments.split(total.noisy[: self.moments.dimension])
        counts = np.maximum(total.noisy[self.moments.dimension :] / self.weight_of_counts, 1.0)
        means = mixed / counts
        within = second - (means * counts) @ means.T
        solved = records * solve(self.moments, within, means * counts, entry, records, self._options.repair) / counts
        weights = solved.T / self._study.data.norm
        # The constant, the last feature, carries what does not depend on the record.
        weights[:, -1] += np.log(counts / counts.sum()) - np.einsum("ij,ij->j", means, solved) / 2.0
        return LinearModel(weights, "softmax", {"records": records, "noise_std_per_moment": entry})


class Softmax(Function):
    """Softmax regression in a few steps: the first moment, then sums of clipped gradients (`learners.softmax_steps`).

    The turns have equal shares of the budget. How many steps there are is fixed by the study, or by what it promises
    and how many records it has at least.
    """

    def __init__(self, study: Study, options: FunctionOptions) -> None:
        clip = options.clip or _SOFTMAX_CLIP
        classes = len(study.data.class_names)
        records = study.parties.count * study.parties.records
        mu = mu_for(min(study.epsilon, LARGEST_EPSILON), study.privacy.delta)
        steps = options.steps or chosen_steps(study.data.dimension, classes, records, mu)
        self.model = SoftmaxSteps(study.data.dimension, classes, steps, clip, options.score_noise)
        self.dimension, self.count = self.model.size, steps + 1
        self.sensitivity, self.record_bound = 2.0 * clip, clip

    def parameters(self, part: str, turn: int) -> Parameters:
        """After the first turn √ω·a, of norm at most 1, and the weights."""
        if turn == 0:
            return NO_PARAMETERS
        axis, weights = self.model.features, self.model.size
        return Parameters((Range(axis, -1.0, 1.0), Range(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT)))

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        if parameters is None:
            return self.model.mean(features)
        axis, weights = parameters[: self.model.features], parameters[self.model.features :]
        return self.model.gradient(axis, weights.reshape(self.model.features, -1), features, labels)

    def conclude(self) -> Generator[Ask, Total, Release]:
        total = yield Ask()
        axis = self.model.axis(total.noisy[: self.model.features], total.noise_std, int(total.exact[0]))
        flat = np.zeros(self.model.size)
        for step in range(self.model.steps):
            known = self.parameters("function", step + 1).nearest(np.concatenate([axis, flat]))
            axis, flat = np.split(known, [self.model.features])
            total = yield Ask(known, turn=step + 1)
            flat = flat + self.model.step_sizes(total.noise_std, int(total.exact[0]))[step] * total.noisy
        weights = flat.reshape(self.model.features, -1)
        weights -= np.outer(axis, axis @ weights)
        details = {"records": int(total.exact[0]), "noise_std_per_gradient": total.noise_std}
        return LinearModel(weights.T, "softmax", details)


class NetworkGradient(Function):
    """Gradient descent for a network of two layers (CAPE, Section 5.1): sums of clipped gradients, one a step."""

    def __init__(self, study: Study, options: FunctionOptions) -> None:
        classes = len(study.data.class_names)
        clip = options.clip or _NETWORK_CLIP
        self.network = Network(study.data.dimension, options.hidden, classes, clip)
        self.dimension, self.count = self.network.size, options.steps or _NETWORK_STEPS
        self.sensitivity, self.record_bound = 2.0 * clip, clip
        self._options = options

    def parameters(self, part: str, turn: int) -> Parameters:
        return weights_within_bounds(self.network.size)

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        if parameters is None or parameters.shape != (self.dimension,):
            raise ValueError("Expected the network's parameters with the request.")
        return self.network.clipped_gradient(parameters, features, labels)

    def conclude(self) -> Generator[Ask, Total, Release]:
        parameters = self.network.initial(self._options.seed)
        records = 0
        for turn in range(self.count):
            parameters = self.parameters("function", turn).nearest(parameters)
            total = yield Ask(parameters, turn=turn)
            records = int(total.exact[0])
            parameters = parameters - self._options.learning_rate * total.noisy / max(records, 1)
        hidden, output = self.network.layers(parameters)
        details = {"records": records, "noise_std_per_gradient": total.noise_std / max(records, 1)}
        return NetworkModel(hidden, output, details)


class Mean(Function):
    """The means of bounded columns; of a category, the share of each of its values."""

    def __init__(self, study: Study) -> None:
        self._columns, self._norm = _columns(study), study.data.norm
        self.dimension = study.data.dimension
        self._table = study.data.is_table
        # Nothing moves by more than twice the norm; in a table a number moves by at most 2, a category's indicators
        # by √2. A matrix's numbers have no bound but the norm.
        numbers = sum(column.categories is None for _, column in self._columns)
        widest = math.sqrt(4.0 * numbers + 2.0 * (len(self._columns) - numbers)) if self._table else math.inf
        self.sensitivity, self.record_bound = min(widest, 2.0 * self._norm), self._norm

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        return sum_of_rows(features)

    def conclude(self) -> Generator[Ask, Total, Release]:
        total = yield Ask()
        records = max(int(total.exact[0]), 1)
        means, deviation = total.noisy / records, total.noise_std / records
        statistics: dict[str, Any] = {}
        start = 0
        for name, column in self._columns:
            part = means[start : start + column.width]
            start += column.width
            if column.categories is not None:
                shares = {str(value): float(share) for value, share in zip(column.categories, part, strict=True)}
                statistics[name] = {"shares": shares, "noise_std": deviation}
                continue
            low, high = column.min or 0.0, column.max or 0.0
            half = (high - low) / 2.0 if self._table else 1.0
            middle = (low + high) / 2.0 if self._table else 0.0
            statistics[name] = {"mean": float(middle + half * part[0]), "noise_std": deviation * half}
        return Statistics(statistics, {"records": records})


_EDGE = 1e-9
"""Of a bin's width: so close below an edge, a number is taken to be at it, from where scaling has moved it."""


class Histogram(Function):
    """How many records fall into each bin of each column: equal bins between a number's bounds, or its categories.

    A number at the edge of two bins is in the upper one, and the largest number in the last.
    """

    def __init__(self, study: Study, bins: int) -> None:
        self._columns, self._bins = _columns(study), bins
        self._reach = 1.0 if study.data.is_table else study.data.norm
        self.dimension = sum(self._width(column) for _, column in self._columns)
        # A record leaves one bin of each column for another.
        self.sensitivity = math.sqrt(2.0 * len(self._columns))
        self.record_bound = math.sqrt(len(self._columns))

    def _width(self, column: Column) -> int:
        return self._bins if column.categories is None else column.width

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        counts, start = [], 0
        for _, column in self._columns:
            part = features[:, start : start + column.width]
            start += column.width
            if column.categories is not None:
                counts.append(part.sum(axis=0))
                continue
            places = (part[:, 0] + self._reach) / (2.0 * self._reach) * self._bins
            bins = np.clip(np.floor(places + _EDGE), 0, self._bins - 1).astype(np.int64)
            counts.append(np.bincount(bins, minlength=self._bins))
        return np.concatenate(counts).astype(np.float64)

    def conclude(self) -> Generator[Ask, Total, Release]:
        total = yield Ask()
        statistics: dict[str, Any] = {}
        start = 0
        for name, column in self._columns:
            counts = total.noisy[start : start + self._width(column)].tolist()
            start += self._width(column)
            if column.categories is not None:
                named = {str(value): count for value, count in zip(column.categories, counts, strict=True)}
                statistics[name] = {"counts": named, "noise_std": total.noise_std}
                continue
            edges = np.linspace(column.min or 0.0, column.max or 0.0, self._bins + 1).tolist()
            statistics[name] = {"edges": edges, "counts": counts, "noise_std": total.noise_std}
        return Statistics(statistics, {"records": int(total.exact[0])})


_MADE_UP = 1000
"""Rows that a function is tried out on, at most"""


class Custom(Function):
    """Any function of a party's records, with a sensitivity that its author states (`unspoken.compute`).

    Where it fails (raises an error, or gives numbers that are not finite, or not as many as stated) a party contributes
    zeros. Zeros are within the bound, but how far they are from what the function gives for other rows nobody knows
    but its author. So the stated sensitivity must hold with them.
    """

    def __init__(self, function: Callable[[Floats], Any], dimension: int, sensitivity: float, bound: float) -> None:
        self._function, self._bound = function, bound
        self.dimension, self.sensitivity, self.record_bound = dimension, sensitivity, bound
        self.notes = (
            f"that replacing one record moves the function's total by at most {sensitivity:g} is its author's word, "
            "also where the function fails on a party's records, which then counts as zeros",
        )

    def bound(self, records: int) -> float:
        return self._bound

    def try_out(self, features: int, records: int, norm: float) -> None:
        """Say what is wrong with the function on made-up rows, so that no party's records have a part in it."""
        rows = np.random.default_rng(0).uniform(size=(min(records, _MADE_UP), features))
        vector = self._vector(rows / max(1.0, math.sqrt(features) / norm))
        if vector.shape != (self.dimension,):
            raise ValueError(f"Expected the function to give {self.dimension} numbers, got the shape {vector.shape}.")
        if not np.isfinite(vector).all():
            raise ValueError(f"Expected the function to give finite numbers, got {vector[~np.isfinite(vector)][0]}.")

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        """The function's numbers; zeros where it fails, since that must not be seen from outside."""
        try:
            vector = self._vector(features)
        except Exception:
            return np.zeros(self.dimension)
        is_right = vector.shape == (self.dimension,) and np.isfinite(vector).all()
        return vector if is_right else np.zeros(self.dimension)

    def _vector(self, rows: Floats) -> Floats:
        return np.asarray(self._function(rows), dtype=np.float64)

    def conclude(self) -> Generator[Ask, Total, Release]:
        total = yield Ask()
        details = {"records": int(total.exact[0]), "noise_std": total.noise_std}
        return Statistics({"total": total.noisy.tolist()}, details)


def _columns(study: Study) -> list[tuple[str, Column]]:
    """A table's columns, or a matrix's, each a number within the study's norm."""
    if study.data.columns is not None:
        return list(study.data.columns.items())
    reach = study.data.norm
    return [(f"x{index}", Column(min=-reach, max=reach)) for index in range(study.data.raw_dimension)]


_SPOILT_BY_CLIPPING = ("discriminant", "network")


class ComputesFunction(Method):
    """A method that computes one of the functions above."""

    keys = FunctionOptions

    @classmethod
    def is_spoilt_by_clipping(cls, study: Study) -> bool:
        return super().is_spoilt_by_clipping(study) or study.method.own_keys.get("function") in _SPOILT_BY_CLIPPING


class FunctionMethod(ComputesFunction):
    """Computes a sum over records; how its noise gets in is for subclasses to say."""

    sizes_known = True
    """Does it become known how many records each party has? Otherwise only how many there are in all."""

    def __init__(self, study: Study, function: Function | None = None) -> None:
        super().__init__(study)
        if study.group is None:
            raise study.error(
                "privacy.unit", f'is "party", but "{self.name}" protects records; use "record" or {{ group = … }}'
            )
        self.options = self.read_options()
        self.function = function or function_for(study, self.options)

    def read_options(self) -> FunctionOptions:
        """The keys of [method]; a method may have more of them, or other defaults."""
        return self.study.options("method", FunctionOptions)

    @property
    @abstractmethod
    def noise(self) -> Mechanism:
        """How the noise gets in."""

    @abstractmethod
    def request(self, ask: Ask) -> Request:
        """How the coordinator asks for the function, or its first part."""

    def plan(self) -> Plan:
        function, parties, group = self.function, self.study.parties, self.study.group or 1
        declared = DeclaredSum(
            name="function",
            dimension=function.dimension,
            bound=function.bound(parties.max_records),
            sensitivity=group * function.sensitivity,
            exact=("records",),
            count=function.count,
            noise=self.noise,
        )
        sums = [declared]
        if part := function.first:
            first = replace(
                declared,
                name=part.name,
                dimension=part.dimension,
                bound=part.record_bound * parties.max_records,
                sensitivity=group * part.sensitivity,
                share=part.share,
                count=1,
            )
            sums.insert(0, first)
        return make_plan(self.study, self.name, sums, (self.known, *function.notes))

    @property
    def known(self) -> str:
        """What becomes known besides the function."""
        if self.sizes_known:
            return "how many records each party has becomes known"
        return "the total number of records becomes known; how many each party has is not part of the promise"

    def parameters(self, request: PartyRequest) -> Parameters:
        return self.function.parameters(request.name, request.turn)

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        return self.function.contribute(block, request.parameters, request.name)

    def coordinate(self, plan: Plan) -> Conversation:
        conclusion = self.function.conclude()
        ask = next(conclusion)
        try:
            while True:
                total = yield self.request(ask)
                ask = conclusion.send(total)
        except StopIteration as end:
            release: Release = end.value
            return release
