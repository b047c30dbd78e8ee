"""The study of each method that is compared.

A variant is a method with keys of its own: [compare.NAME] has the keys, and `method` if NAME is not the method's name.
What these leave open is taken from the study: the keys of [method] that the other method knows, and the function that
is computed. So methods are compared on the same task: if the study computes a softmax classifier, so does the `central`
baseline, although by default it would compute something else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from unspoken.errors import UnspokenError
from unspoken.methods.base import Method
from unspoken.methods.registry import METHODS, method_for
from unspoken.plugins import UnknownName, quoted, suggestion
from unspoken.study import Study, StudyError, make_study

_COMPUTED = ("function", "learner")
"""Keys by which a method can be told what to compute"""
_SAME = {"logistic": "logistic-regression", "logistic-regression": "logistic"}
"""Other names of what is computed"""


def with_variants(study: Study, texts: Sequence[str], option: str = "--variant") -> Study:
    """The study with more sections [compare.NAME], each from a line of TOML: NAME = { method = "…", key = … }."""
    sections = dict(study.compare)
    for text in texts:
        added = _sections_in(text)
        if not added or not all(isinstance(keys, dict) for keys in added.values()):
            example = 'strong = { method = "helmet", regularization = 1.0 }'
            raise UnspokenError(f"{option} is {text!r}, but should be a name and its keys, such as {example}.")
        sections |= added
    return study.model_copy(update={"compare": sections})


@contextmanager
def naming_variants(study: Study, texts: Sequence[str], option: str = "--variant") -> Iterator[None]:
    """Reports a mistake in one of these lines as the option's: the study file, which the message would name, has none
    of them."""
    try:
        yield
    except StudyError as error:
        section, name = (*error.place, "", "")[:2]
        text = next((text for text in texts if section == "compare" and name in _sections_in(text)), None)
        if text is None:
            raise
        problem = re.sub(rf"^{re.escape(str(study.source))}(, line \d+)?: (\[compare\] )?", "", str(error))
        raise UnspokenError(f"{option} is {text!r}, in which {problem}") from None


def _sections_in(text: str) -> dict[str, Any]:
    """The sections in a line of TOML; none if it is no TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def method_of(study: Study, variant: str) -> str:
    """The method of a variant."""
    named = str(study.compare.get(variant, {}).get("method", variant))
    if named not in METHODS:
        problem = UnknownName(named, (*METHODS, *study.compare)).problem
        raise StudyError(f"the method to compare with {problem}{'' if problem.endswith('?') else '.'}")
    return named


def study_for(study: Study, variant: str, epsilon: float) -> Study:
    """The study for another method, or variant of one, and another ε.

    It gets the keys of [compare.NAME], or else those keys of [method] that it knows. If it cannot use the study's
    summation, it uses the default one.
    """
    _check_sections(study)
    method = method_of(study, variant)
    content = _content_for(study, METHODS[method], epsilon)
    place = ("compare", variant)
    if variant in study.compare:
        keys = {key: value for key, value in study.compare[variant].items() if key != "method"}
        changed = make_study({**content, "method": {"name": method, **keys}}, study.source, place)
        alike = _alike(study, changed)
        method_for(alike)
        return alike
    keys = study.method.own_keys
    changed = make_study({**content, "method": {"name": method, **keys}}, study.source)
    known = METHODS[method].keys_for(changed).model_fields
    keys = {key: value for key, value in keys.items() if key in known}
    changed = make_study({**content, "method": {"name": method, **keys}}, study.source)
    alike = _alike(study, changed, inherited=method != study.method.name)
    try:
        method_for(alike)
    except StudyError as error:
        if method == study.method.name or error.place[:1] != ("method",):
            raise
        raise StudyError(
            f"{error} (A section [compare.{method}] can give keys for {method} alone.)", error.place
        ) from None
    return alike


def _alike(study: Study, changed: Study, inherited: bool = False) -> Study:
    """The changed study, set to compute what the study computes, if it can and has no function of its own.

    Keys that it inherited from the study are left out where they mean nothing.
    """
    wanted, keys = study.described.computes(study), changed.method.own_keys
    if not wanted or changed.method.name == study.method.name or not keys.keys().isdisjoint((*_COMPUTED, "model")):
        return _without_unused(changed) if inherited else changed
    known = changed.described.keys_for(changed).model_fields
    content = changed.model_dump(exclude_none=True, exclude={"compare"})
    for key in known.keys() & set(_COMPUTED):
        for name in (wanted, _SAME.get(wanted, wanted)):
            try:
                told = {**content, "method": {**content["method"], key: name}}
                alike = make_study(told, changed.source, changed.method_place)
                alike = _without_unused(alike) if inherited else alike
                method_for(alike)
            except StudyError:
                continue
            return alike
    return _without_unused(changed) if inherited else changed


def _without_unused(study: Study) -> Study:
    """The study without keys of [method] that mean nothing in it."""
    unused = study.described.unused_keys(study)
    content = study.model_dump(exclude_none=True, exclude={"compare"})
    content["method"] = {key: value for key, value in content["method"].items() if key not in unused}
    return make_study(content, study.source, study.method_place) if unused else study


def _check_sections(study: Study) -> None:
    """Refuse sections [compare.NAME] that no method could use."""
    for name, keys in study.compare.items():
        if name not in METHODS and "method" not in keys:
            known = tuple(METHODS)
            problem = f'names no method; add method = "…", or use one of: {quoted(known)}{suggestion(name, known)}'
            raise study.error(f"compare.{name}", problem)
        if "method" in keys and keys["method"] not in METHODS:
            raise study.error(f"compare.{name}.method", UnknownName(str(keys["method"]), tuple(METHODS)).problem)
        if "name" in keys:
            raise study.error(f"compare.{name}.name", "is a key of [method] only; a method's name is method = …")


def _content_for(study: Study, kind: type[Method], epsilon: float) -> dict[str, Any]:
    """The content of the study's file for another method, without its keys."""
    content = study.model_dump(exclude_none=True, exclude={"compare"})
    if not kind.accepts(study.protocol_class):
        del content["summation"]
        content.pop("roster", None)  # It has the keys of the other summation's helpers. Simulations make up their own.
    content["privacy"] = {**content["privacy"], "epsilon": epsilon}
    content["privacy"].pop("noise_multiplier", None)
    # A norm that the study left to its own method is left to this one too.
    open_norm = {**content, "data": {key: value for key, value in content["data"].items() if key != "norm"}}
    return open_norm if make_study(open_norm, study.source).data.norm == study.data.norm else content
