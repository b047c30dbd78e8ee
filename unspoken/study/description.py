"""A method's description of itself, for studies, templates, estimators and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from unspoken.study.sections import LARGEST_NORM, Section, Task

if TYPE_CHECKING:
    from unspoken.study.study import Study

Template = Mapping[str, str]
"""Lines of a study file, by task"""


class Description:
    """The class attributes of a method, with safe defaults."""

    name: ClassVar[str]
    """The name in a study's [method], and of the entry point"""
    summary: ClassVar[str] = ""
    """One line for people who choose a method"""
    tasks: ClassVar[tuple[Task, ...]] = get_args(Task)
    """The tasks that it can do"""
    keys: ClassVar[type[Section]] = Section
    """Its keys in a study's [method], besides the name"""
    asks: ClassVar[frozenset[str]] = frozenset({"sum"})
    """The services of which a summation protocol must offer one: "sum" opens a total, "vote" opens winners"""
    template: ClassVar[Template] = {}
    """The commented lines that `unspoken new` writes under [method], by task; {public} stands for the file of public
    records"""
    summation_template: ClassVar[str] = ""
    """The lines that `unspoken new` writes under [summation], if not the usual ones"""
    solves_for: ClassVar[str | None] = None
    """The key that is computed if a study gives both epsilon and noise_multiplier and leaves this key out"""
    estimator_parameters: ClassVar[tuple[str, ...]] = ()
    """The parameters of `PrivateClassifier` that are keys of this method; others are passed in `options`"""

    @classmethod
    def variant(cls, study: Study) -> type[Description]:
        """The class for this study: this one, or another that takes over."""
        return cls

    @classmethod
    def needs_norm(cls, study: Study) -> bool:
        """Whether the sensitivity rests on the norm of records, not on clipped gradients or ballots."""
        return True

    @classmethod
    def is_spoilt_by_clipping(cls, study: Study) -> bool:
        """Whether clipped records bias the result; then the default norm clips nothing."""
        return study.task != "classification"

    @classmethod
    def default_norm(cls, study: Study) -> float:
        """The norm of records if the study gives none.

        A table has public bounds, so some norm clips nothing. A matrix has none, so its records stay unclipped only
        with methods that bound something else.
        """
        needed = cls.needs_norm(study)
        if study.data.is_table and (not needed or cls.is_spoilt_by_clipping(study)):
            return study.data.largest_norm
        return 1.0 if needed else LARGEST_NORM

    @classmethod
    def gives_probabilities(cls, keys: Mapping[str, Any]) -> bool:
        """Whether a classifier with these keys can have `predict_proba`."""
        return True

    @classmethod
    def accepts(cls, protocol: type[Any]) -> bool:
        """Whether a summation protocol offers what the method asks for; without `serves` it offers sums."""
        served: frozenset[str] = getattr(protocol, "serves", frozenset({"sum"}))
        return not cls.asks.isdisjoint(served)
