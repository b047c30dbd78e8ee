"""What a method says about itself: all that a study, a template, an estimator or a comparison asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from unspoken.study.sections import LARGEST_NORM, Section, Task

if TYPE_CHECKING:
    from unspoken.study.study import Study

Template = Mapping[str, str]
"""Lines of a study file, by the study's task"""


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
    """What a summation protocol must be able to do for it: one of these. "sum" opens a total, "vote" opens winners."""
    template: ClassVar[Template] = {}
    """By task, the commented lines that `unspoken new` writes under [method], after the name. {public} stands for the
    name of a file with public records. `unspoken new` offers the method for these tasks only."""
    summation_template: ClassVar[str] = ""
    """The lines that `unspoken new` writes under [summation], if the usual ones do not fit."""
    solves_for: ClassVar[str | None] = None
    """The key that follows from epsilon and noise_multiplier, if a study gives both and leaves this key open."""
    estimator_parameters: ClassVar[tuple[str, ...]] = ()
    """Parameters of `PrivateClassifier` that are keys of this method. All others are passed in `options`."""

    @classmethod
    def keys_for(cls, study: Study) -> type[Section]:
        """The keys of [method] in this study: `keys`, unless some of them decide which others there are."""
        return cls.keys

    @classmethod
    def needs_norm(cls, study: Study) -> bool:
        """Whether the sensitivity rests on the norm of records, and not on clipped gradients, or on ballots."""
        return True

    @classmethod
    def is_spoilt_by_clipping(cls, study: Study) -> bool:
        """Whether clipped records give a biased result: then a norm that the study leaves open clips nothing."""
        return study.task != "classification"

    @classmethod
    def default_norm(cls, study: Study) -> float:
        """The norm of records, if the study leaves it open.

        A table has public bounds, so there is a norm that clips nothing. A matrix has none, so only methods that bound
        something else leave its records as they are.
        """
        needed = cls.needs_norm(study)
        if study.data.is_table and (not needed or cls.is_spoilt_by_clipping(study)):
            return study.data.largest_norm
        return 1.0 if needed else LARGEST_NORM

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
