"""A method's description of itself, for those who know no method by name: studies, templates, estimators."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from unspoken.study.section import Section
from unspoken.study.sections import LARGEST_NORM, Task

if TYPE_CHECKING:
    from unspoken.study.study import Study

Template = Mapping[str, str]
"""Lines of a study file, by the study's task"""


_COMPUTED = ("function", "student", "model", "learner")
"""Keys of methods that say what is computed, the telling ones first"""
BY_RULE = ", by rule"
"""Ends the name of a function whose settings a rule chooses"""


class Description:
    """The class attributes of a method. Each has a default that is safe for a method that says nothing."""

    name: ClassVar[str]
    """The name in a study's [method]. The entry point has the same."""
    summary: ClassVar[str] = ""
    """One line for people who choose a method."""
    tasks: ClassVar[tuple[Task, ...]] = get_args(Task)
    """The tasks that it can do."""
    keys: ClassVar[type[Section]] = Section
    """Its keys in a study's [method], besides the name."""
    asks: ClassVar[frozenset[str]] = frozenset({"sum"})
    """A summation protocol must offer at least one of these services. "sum" opens a total, "vote" opens winners."""
    template: ClassVar[Template] = {}
    """The commented lines that `unspoken new` writes under [method], after the name, by task. {public} stands for the
    name of a file with public records. `unspoken new` offers the method for these tasks only."""
    matrix_template: ClassVar[Template] = {}
    """The same for a matrix, for the tasks where its lines differ from those for a table."""
    summation_template: ClassVar[str] = ""
    """The lines that `unspoken new` writes under [summation], if the usual ones do not fit."""
    measures_statistics: ClassVar[bool] = False
    """Whether the `metrics` of its statistics have something to measure on test records. A model always has."""
    takes_functions: ClassVar[bool] = False
    """Whether it computes any function that it is given (`unspoken.compute`) as a `WorkloadMethod`."""
    knows_exact: ClassVar[bool] = False
    """Whether `Method.exact_release` says what its statistics would be without noise."""
    details: ClassVar[frozenset[str]] = frozenset(
        {
            "records",
            "voters",
            "queries",
            "noise_std",
            "noise_std_per_coefficient",
            "noise_std_per_gradient",
            "noise_std_per_moment",
            "noise_std_per_step",
            "noise_std_per_total",
            "noise_std_per_weight",
            "rounds_made",
            "validation_accuracy",
            "validation_mse",
        }
    )
    """The numbers, by their names, that its release may add to the certificate (`Release.details`). Parties sign no
    certificate that has others."""
    solves_for: ClassVar[str | None] = None
    """The key that follows from epsilon and noise_multiplier, if a study gives both and leaves this key open."""
    fewest_parties: ClassVar[int] = 2
    """The least number of parties that it makes sense with: 1 if a party alone gets a result that is private."""
    votes_on_public: ClassVar[bool] = False
    """Whether parties vote on the study's public records."""
    estimator_parameters: ClassVar[tuple[str, ...]] = ()
    """Parameters of `PrivateClassifier` that are keys of this method. All others are passed in `options`."""

    @classmethod
    def keys_for(cls, study: Study) -> type[Section]:
        """The keys of [method] in this study: `keys`, unless some of them decide which others there are."""
        return cls.keys

    @classmethod
    def computes(cls, study: Study) -> str:
        """The name of what it computes in this study: a function, a model or a learner; "" if no key says it."""
        fields, given = cls.keys_for(study).model_fields, study.method.own_keys
        named = (given.get(key, fields[key].default) for key in _COMPUTED if key in fields)
        return next((name for name in named if isinstance(name, str)), "")

    @classmethod
    def told(cls, study: Study) -> str:
        """The function of this study, as people are told it: `computes`, unless that name tells too little."""
        return cls.computes(study)

    @classmethod
    def used_with(cls, study: Study) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """Keys that matter only with some values of another key: {"smoothing": ("learner", ("svm",))}. A study that
        gives one with another value is refused."""
        return {}

    @classmethod
    def chosen(cls, study: Study, key: str) -> Any:
        """The value of a key of [method] in this study: the given one, or the default."""
        return study.method.own_keys.get(key, cls.keys_for(study).model_fields[key].default)

    @classmethod
    def unused_keys(cls, study: Study) -> dict[str, str]:
        """Keys of [method] that the study gives although they change nothing, each with the reason and the remedy."""
        found = {}
        for key, (other, values) in cls.used_with(study).items():
            value = cls.chosen(study, other)
            if study.method.own_keys.get(key) is not None and value not in values:
                remedy = " or ".join(f'"{name}"' for name in values)
                remedy = f"remove it, or set {other} = {remedy}" if values else "remove it"
                found[key] = f'{other} = "{value}" makes no use of it; {remedy}'
        return found

    @classmethod
    def columns_read(cls, study: Study) -> tuple[str, ...]:
        """The columns of the study's table that the result depends on, besides the label: what people who read the plan
        are told is used."""
        return tuple(study.data.columns or ())

    @classmethod
    def needs_norm(cls, study: Study) -> bool:
        """Whether the sensitivity rests on the norm of records, and not on clipped gradients, or on ballots."""
        return True

    @classmethod
    def default_norm(cls, study: Study) -> float:
        """The norm of records, if the study leaves it open.

        A table has public bounds, so there is a norm that clips nothing: it is taken. A matrix has none: features
        are to have norm 1 at most, and only methods that bound something else leave them as they are. A constant is
        on top of that.
        """
        if study.data.is_table:
            return study.data.largest_norm
        constant = study.data.constant if study.data.has_intercept else 0.0
        return math.hypot(1.0, constant) if cls.needs_norm(study) else LARGEST_NORM

    @classmethod
    def default_constant(cls, study: Study) -> float:
        """What is appended to each record for the intercept. A rule may use all of the study, but a norm only if the
        study gives one."""
        return 1.0

    @classmethod
    def learns_directions(cls, study: Study) -> bool:
        """Whether the model is a classifier that is linear in the study's bounded vectors, so that it can be learnt on
        mapped ones and mapped back: see `methods.planning.directions`."""
        return False

    @classmethod
    def gives_probabilities(cls, keys: Mapping[str, Any]) -> bool:
        """Whether a classifier made with these keys can have `predict_proba`."""
        return True

    @classmethod
    def accepts(cls, protocol: type[Any]) -> bool:
        """Whether a summation protocol does what the method asks for. A protocol that does not say what it `serves` is
        for sums."""
        served: frozenset[str] = getattr(protocol, "serves", frozenset({"sum"}))
        return not cls.asks.isdisjoint(served)
