"""Functions of one's own: totals over parties, in one turn or several, and the functional mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from unspoken import defaults
from unspoken.data.files import DataError, check_arrays
from unspoken.data.parties import number_parties
from unspoken.engines.conditions import Progress
from unspoken.learners.polynomials import Polynomial
from unspoken.methods.functions import Custom, FunctionOptions, RecordPolynomials, Turns
from unspoken.methods.registry import METHODS
from unspoken.methods.workloads import WorkloadMethod
from unspoken.plugins import quoted, suggestion
from unspoken.privacy.guarantee import Guarantee
from unspoken.privacy.ledger import Ledger
from unspoken.report.certificate import LARGEST
from unspoken.report.remarks import on_records
from unspoken.simulation.arrays import sizes_of, warn
from unspoken.simulation.runs import Simulation, simulate_records
from unspoken.study import LARGEST_NORM, Study, make_study
from unspoken.types import Floats, Integers


class ComputeArguments(TypedDict, total=False):
    """Arguments of `compute` and `functional_mechanism`, beside those of the function itself."""

    epsilon: float | None
    noise_multiplier: float | None
    """Instead of epsilon: how many times the sensitivity the noise of each total is at least"""
    method: str
    """One of "moments" (the default), "cape", "conv", "local" and "central"."""
    options: Mapping[str, Any] | None
    """The method's keys, such as {"correlation": 5}"""
    unit: str | dict[str, int]
    """The protected unit, "record" (the default) or {"group": k}"""
    colluding: float
    dropouts: float
    norm: float | None
    """The L2 norm that rows are clipped to"""
    protocol: str
    """The summation"""
    drop: int
    """The number of parties that vanish in this simulation, chosen by `seed`"""
    seed: int
    progress: Progress | None
    ledger: Ledger | None


_MOST_NUMBERS = 20_000_000
"""The most indices of a tensor's entries, one for each of its axes"""
_LEAST_TIMES, _MOST_TIMES = 1e-3, 1e6
"""The smallest and the largest noise multiplier of a turn"""
_SETTINGS = ", ".join(ComputeArguments.__annotations__)


class _Simulated:
    """What every result has."""

    simulation: Simulation

    @property
    def guarantee(self) -> Guarantee:
        return self.simulation.plan.guarantee

    @property
    def certificate(self) -> dict[str, Any]:
        return self.simulation.certificate


@dataclass(frozen=True)
class Computation(_Simulated):
    """The result of `compute`: the function's noisy total over all parties."""

    total: Floats
    """The total; of several turns, the last one"""
    noise_std: float
    """The standard deviation of the noise in each number of the total"""
    simulation: Simulation
    totals: list[Floats] = field(default_factory=list)
    """The totals of all turns"""
    parameters: Floats | None = None
    """The numbers that the last turn's total led to"""


@dataclass(frozen=True)
class FunctionalMechanism(_Simulated):
    """The result of `functional_mechanism`."""

    polynomial: Polynomial
    """The mean of the records' polynomials, under noise: `coefficients`, `value`, `gradient` and `minimiser`"""
    noise_std: dict[int, float]
    """The deviation of the noise in the coefficients of each order (in those that are once in their tensor)"""
    simulation: Simulation


def compute(
    function: Callable[..., npt.ArrayLike],
    X: npt.ArrayLike,  # noqa: N803
    groups: npt.ArrayLike,
    *,
    dimension: int,
    sensitivity: float | Sequence[float],
    bound: float,
    delta: float,
    turns: int = 1,
    start: npt.ArrayLike | None = None,
    update: Callable[[Floats, Floats], npt.ArrayLike] | None = None,
    parameter_bounds: tuple[float, float] = (-1e6, 1e6),
    **setting: Unpack[ComputeArguments],
) -> Computation:
    """The noisy total over parties of any function of their records; `ComputeArguments` has the other arguments.

    `method` is "moments" (a secure sum), "cape", "conv", "local" or "central", and `options` its keys, such as
    {"correlation": 5} for "cape". `function` takes the rows of one party and returns `dimension` numbers. It is tried
    on made-up rows between 0 and 1; a party at which it fails later contributes zeros. You state in `sensitivity` that
    replacing one row moves the numbers by at most that much in L2 norm, also to and from the zeros of a failure: the
    guarantee rests on it, so a function that can fail on some rows must handle that itself. It may be a list, with one
    number for each party: the total is public, so the largest counts. A party's numbers are clipped to the L2 norm
    `bound`, and rows to `norm` if given; a `DataWarning` says if that happened. With "central" the function takes the
    rows of all parties at once, so methods are comparable if it is a sum over rows.

    With `start` there are `turns` turns under one budget: the function also takes numbers, first `start`, and then what
    `update(total, numbers)` makes of a turn's noisy total, moved into `parameter_bounds`. Instead of `epsilon`, a
    `noise_multiplier` says how many times the sensitivity the noise of each turn is at least.

    >>> rows = np.random.default_rng(0).uniform(size=(1000, 1))
    >>> above = compute(lambda rows: [(rows > 0.5).sum()], rows, np.arange(1000) % 10, dimension=1, sensitivity=1,
    ...                 bound=1000, epsilon=1, delta=1e-6)
    >>> bool(abs(above.total[0] - 500) < 100)
    True
    """
    parties = _parties(X, groups)
    largest = _check_stated(dimension, sensitivity, bound, int(parties.max()) + 1)
    several = _turns(turns, start, update, parameter_bounds)
    custom = Custom(function, int(dimension), largest, float(bound), several)
    study, features = _study("compute", X, parties, _privacy(delta, turns, setting), setting)
    custom.try_out(features.shape[1], study.parties.records, study.data.norm)
    simulation = _simulated(study, custom, features, parties, setting)
    release = simulation.outcome.release
    found, noise = release.to_json()["statistics"], float(release.details["noise_std"])
    totals = [np.array(total) for total in found.get("totals", [found["total"]])]
    parameters = np.array(found["parameters"]) if several is not None else None
    return Computation(np.array(found["total"]), noise, simulation, totals, parameters)


def functional_mechanism(
    coefficients: Callable[[Floats], Mapping[int, Any]],
    X: npt.ArrayLike,  # noqa: N803
    groups: npt.ArrayLike,
    *,
    variables: int,
    norms: Mapping[int, float],
    delta: float,
    **setting: Unpack[ComputeArguments],
) -> FunctionalMechanism:
    """A noisy polynomial: the mean of those that the records have, for costs that are one or nearly so.

    `coefficients` takes one row of X (put a label into a column of its own) and returns the coefficients of its
    polynomial in `variables` variables w: {1: a vector, 2: a matrix, 3: …}, so that the cost is the sum of ⟨order 1,
    w⟩, ⟨order 2, w⊗w⟩, and so on; order 0, a number, does not move the minimiser. The symmetric part of each is clipped
    to the Frobenius norm that `norms` states for its order, so that the guarantee holds whatever the function makes of
    a row, if it looks at this row alone. All orders, up to 8, are one release. The other arguments are those of
    `compute` (`ComputeArguments`).

    The loss of a logistic regression, log(1 + exp(xᵀw)) − y·xᵀw, up to order 2 (CAPE, Appendix H), for ‖x‖ ≤ 1:

    >>> def logistic(row):
    ...     x, y = row[:-1], row[-1]
    ...     return {1: (0.5 - y) * x, 2: np.outer(x, x) / 8}
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-0.7, 0.7, size=(5000, 2))
    >>> rows = np.column_stack([x, rng.uniform(size=5000) < 1 / (1 + np.exp(-4 * x[:, 0]))])
    >>> found = functional_mechanism(logistic, rows, np.arange(5000) % 5, variables=2, norms={1: 0.5, 2: 0.125},
    ...                              method="cape", epsilon=3, delta=1e-6)
    >>> w = found.polynomial.minimiser(radius=10)
    >>> bool(w[0] > 2 and abs(w[1]) < 1)
    True
    """
    if not (isinstance(variables, Integral) and variables >= 1):
        raise DataError(f"variables is {variables!r}, but should be the number of variables, 1 or more.")
    if not isinstance(norms, Mapping):
        raise DataError(f"norms is {norms!r}, but should be norms by order, such as {{1: 0.5, 2: 0.1}}.")
    if not norms or not any(norms) or not all(isinstance(order, Integral) and 0 <= order <= 8 for order in norms):
        raise DataError(f"norms has the orders {[*norms]}, but should have whole numbers from 0 to 8, not 0 alone.")
    if wrong := [value for value in norms.values() if not (isinstance(value, Real) and 1e-100 < value < 1e100)]:
        raise DataError(f"norms has {wrong[0]!r}, but should have numbers from 1e-100 to 1e100.")
    if (order := int(max(norms))) * int(variables) ** order > _MOST_NUMBERS:
        raise DataError(f"norms has the order {order}, which takes too much memory with {variables} variables.")
    parties = _parties(X, groups)
    summed = RecordPolynomials(coefficients, int(variables), {int(order): float(r) for order, r in norms.items()})
    study, features = _study("polynomial", X, parties, _privacy(delta, 1, setting), setting)
    summed.try_out(features.shape[1])
    simulation = _simulated(study, summed, features, parties, setting)
    release = simulation.outcome.release
    found, noise = release.to_json()["statistics"], float(release.details["noise_std"]) / release.details["records"]
    tensors = {order: np.array(found[f"order {order}"]) for order in sorted(map(int, norms))}
    # Of the entries that are once in their tensor; others have the less noise the more often they are there.
    return FunctionalMechanism(
        Polynomial(tensors), {order: noise * summed.scale(order) for order in tensors}, simulation
    )


def _privacy(delta: float, turns: int, setting: ComputeArguments) -> dict[str, Any]:
    """A study's [privacy]. Its noise multiplier is that of all turns together: z/√turns, for noise of z in each."""
    if unknown := sorted(setting.keys() - ComputeArguments.__annotations__.keys()):
        raise TypeError(f"{unknown[0]!r} is no argument; beside those of the function there are: {_SETTINGS}.")
    epsilon, times = setting.get("epsilon"), setting.get("noise_multiplier")
    if (epsilon is None) == (times is None):
        raise DataError("epsilon and noise_multiplier are both given or both missing; give one of them.")
    noise: dict[str, Any] = {"epsilon": epsilon}
    if times is not None:
        if not (isinstance(times, Real) and _LEAST_TIMES <= times <= _MOST_TIMES):
            bounds = f"from {_LEAST_TIMES:g} to {_MOST_TIMES:g}"
            raise DataError(f"noise_multiplier is {times!r}, but should be a number {bounds}.")
        noise = {"noise_multiplier": float(times) / math.sqrt(turns)}
    trust = {"colluding": setting.get("colluding", 0), "dropouts": setting.get("dropouts", 0)}
    return {**noise, "delta": delta, "unit": setting.get("unit", "record"), **trust}


def _parties(rows: npt.ArrayLike, groups: npt.ArrayLike) -> Integers:
    """The party of each row."""
    features = np.asarray(rows)
    if features.ndim != 2 or len(features) == 0:
        raise DataError(f"X has the shape {features.shape}, but should have one row a record.")
    return number_parties(groups, len(features))


def _study(
    name: str, rows: npt.ArrayLike, parties: Integers, privacy: dict[str, Any], setting: ComputeArguments
) -> tuple[Study, Floats]:
    """The study that the arguments describe, and its records."""
    norm, options = setting.get("norm"), setting.get("options") or {}
    if not isinstance(options, Mapping):
        raise DataError(f'options is {options!r}, but should be keys of the method, such as {{"correlation": 5}}.')
    if lost := sorted(options.keys() & {"name", *FunctionOptions.model_fields}):
        remedy = "give the method's name as method" if lost[0] == "name" else "the function is your own; remove it"
        raise DataError(f"options has {lost[0]!r}, which has no place there: {remedy}.")
    study = make_study(
        {
            "study": {"name": name, "task": "statistics"},
            "data": {"features": np.asarray(rows).shape[1], "norm": LARGEST_NORM if norm is None else norm},
            "parties": sizes_of(parties, privacy["unit"]),
            "privacy": privacy,
            "method": {"name": setting.get("method", defaults.METHOD), **options},
            "summation": {"protocol": setting.get("protocol", defaults.PROTOCOL)},
        },
        source=name,
    )
    features = check_arrays(rows, None, study, "X").features
    if norm is None and (longest := float(np.linalg.norm(features, axis=1).max())) > LARGEST_NORM:
        raise DataError(
            f"X has a row of norm {longest:g}, above {LARGEST_NORM:g}; scale X, or give the norm to clip to."
        )
    return study, features


def _simulated(
    study: Study, function: Custom | RecordPolynomials, features: Floats, parties: Integers, setting: ComputeArguments
) -> Simulation:
    """The run, and Python warnings of what was clipped on the way."""
    records, method = check_arrays(features, None, study, "X"), _function_method(study)(study, function)
    if isinstance(function, Custom) and method.noise.pooled:
        function.together = study.parties.count  # A curator's vector may be as long as all parties' together.
    if (noise := max(planned.largest_total_std for planned in method.agreed_plan.sums)) > LARGEST:
        raise DataError(
            f"The noise would have a deviation of {noise:.3g}, but a certificate states only numbers up to "
            f"{LARGEST:.3g}; let the function give smaller numbers, in larger units."
        )
    simulation = simulate_records(
        study,
        records,
        parties,
        method=method,
        drop=setting.get("drop", 0),
        seed=setting.get("seed", 0),
        progress=setting.get("progress"),
        ledger=setting.get("ledger"),
    )
    warn([*on_records(study, records), *function.observed.remarks()], stacklevel=3)
    return simulation


def _turns(
    count: int,
    start: npt.ArrayLike | None,
    update: Callable[[Floats, Floats], npt.ArrayLike] | None,
    bounds: tuple[float, float],
) -> Turns | None:
    """What the caller of `compute` says about several turns; None: there is one, without numbers."""
    if not (isinstance(count, Integral) and count >= 1):
        raise DataError(f"turns is {count!r}, but should be a whole number from 1.")
    if start is None or update is None:
        if count > 1 or start is not None or update is not None:
            raise DataError("start and update belong together, and several turns need both; give both, or neither.")
        return None
    if not callable(update):
        raise DataError(f"update is {update!r}, but should be a function of a noisy total and the turn's numbers.")
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (-math.inf < low < high < math.inf):
        raise DataError(f"parameter_bounds is {bounds!r}, but should be two finite numbers, the smaller one first.")
    try:
        first = np.asarray(start, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise DataError(f"start is {start!r}, but should be numbers, all from {low:g} to {high:g}.") from None
    if first.size == 0 or not ((first >= low) & (first <= high)).all():
        raise DataError(f"start has {first.size} numbers, but should have some, all from {low:g} to {high:g}.")
    return Turns(int(count), first, update, low, high)


def _check_stated(dimension: int, sensitivity: float | Sequence[float], bound: float, parties: int) -> float:
    """Check what the caller of `compute` states about the function; the largest sensitivity."""
    if not (isinstance(dimension, Integral) and dimension >= 1):
        raise DataError(f"dimension is {dimension!r}, but should be how many numbers the function returns, 1 or more.")
    is_list = np.ndim(sensitivity) > 0 and not isinstance(sensitivity, str)
    stated = list(np.asarray(sensitivity)) if is_list else [sensitivity]
    if is_list and len(stated) != parties:
        raise DataError(f"sensitivity has {len(stated)} numbers, but should have one for each of {parties} parties.")
    for name, value in (*(("sensitivity", each) for each in stated), ("bound", bound)):
        if not (isinstance(value, Real) and math.isfinite(value) and value > 0.0):
            raise DataError(f"{name} is {value!r}, but should be a number above 0.")
    largest = float(max(stated))
    if largest > 2.0 * bound:
        raise DataError(
            f"sensitivity is {largest:g}, but a party's numbers are clipped to bound = {bound:g}, so that nothing "
            f"moves them by more than {2.0 * bound:g}; state at most that, or raise bound."
        )
    return largest


def _function_method(study: Study) -> type[WorkloadMethod]:
    """The class of the study's method, if it can compute functions."""
    name = study.method.name
    kind = METHODS.get(name)
    if kind is None or not issubclass(kind, WorkloadMethod) or not kind.takes_functions:
        able = [known for known, other in METHODS.usable() if other.takes_functions]
        problem = f'is "{name}", but to compute a function it should be one of: {quoted(able)}'
        raise study.error("method.name", problem + suggestion(name, able))
    return kind
