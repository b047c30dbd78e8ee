"""The features of an array, scaled by public bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspoken.data.checking import wide_bounds
from unspoken.data.clipped import Clipped, Holders, on_clipped
from unspoken.study.columns import LARGEST_BOUND, SMALLEST_RANGE
from unspoken.types import Floats


@dataclass(frozen=True)
class Scaling:
    """Public bounds of the features, by which they are clipped and scaled to [−1, 1]; None: they are as they are."""

    bounds: tuple[Floats, Floats] | None

    @classmethod
    def of(cls, bounds: Any, names: Sequence[str]) -> Scaling:
        """The scaling of features with these names; or `ValueError`."""
        if bounds is None:
            return cls(None)
        many, shown = f"two numbers or one each of {len(names)} features", " ".join(repr(bounds).split())
        shown = shown if len(shown) <= 80 else f"{shown[:79]}…"
        if isinstance(bounds, Mapping):
            # One of the features 0 and 1 would pass for the bounds 0 and 1 of all.
            remedy = "write bounds=([lowest of each], [highest of each]), in the order of the features"
            raise ValueError(f"Expected bounds=(low, high), {many}, got the dictionary bounds={shown}; {remedy}.")
        try:
            low, high = (np.broadcast_to(_in_order(bound, names), (len(names),)) for bound in bounds)
        except (TypeError, ValueError):
            raise ValueError(f"Expected bounds=(low, high), {many}, got bounds={shown}.") from None
        _check_names(bounds, names)
        for name, least, most in zip(names, low.tolist(), high.tolist(), strict=True):
            if not (least >= -LARGEST_BOUND and most <= LARGEST_BOUND and most - least >= SMALLEST_RANGE):
                raise ValueError(
                    f"Expected bounds=(low, high), each low below its high, from {-LARGEST_BOUND:g} to "
                    f"{LARGEST_BOUND:g}, got {least:g} and {most:g} for the feature {name!r}; give what is publicly "
                    "known of it, or leave the feature out."
                )
        return cls((low, high))

    def apply(self, features: Floats) -> Floats:
        if self.bounds is None:
            return features
        low, high = self.bounds
        scaled: Floats = (np.clip(features, low, high) - low) / (high - low) * 2.0 - 1.0
        return scaled

    def in_units(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """A linear model's weights, in the units of the features."""
        if self.bounds is None or "coef_" not in attributes:
            return attributes
        low, high = self.bounds
        weights = attributes["coef_"]
        shift = weights @ ((high + low) / (high - low))
        return {**attributes, "coef_": weights * 2.0 / (high - low), "intercept_": attributes["intercept_"] - shift}

    def remarks(self, features: Floats, names: Sequence[str], holders: Holders | None = None) -> Iterator[str]:
        """Remarks on features of which many values are clipped, or whose bounds are far too wide."""
        if self.bounds is None:
            return
        low, high = self.bounds
        named = [f"feature {str(name)!r}" for name in names]
        found = [
            Clipped(name, flags, f"{least:g} to {most:g}")
            for name, flags, least, most in zip(named, ((features < low) | (features > high)).T, low, high, strict=True)
        ]
        yield from on_clipped(found, holders, "the bounds", "correct the values or the bounds")
        if text := wide_bounds(named, self.apply(features), "the bounds"):
            yield f"{text}; give closer ones, if they are publicly known"


def _in_order(bound: Any, names: Sequence[str]) -> Floats:
    """One bound of each feature; a series that names its features, or numbers them, may have them in another order."""
    values = np.asarray(bound, dtype=np.float64)
    index = [str(name) for name in bound.index] if hasattr(bound, "iloc") else []
    for known in (list(names), [str(place) for place in range(len(names))]):
        if sorted(index) == sorted(known):
            return values[[index.index(name) for name in known]]
    return values


def _check_names(bounds: Any, names: Sequence[str]) -> None:
    """Refuse a series that has as many bounds as a data frame has features, but of other names."""
    numbered = [str(place) for place in range(len(names))]
    if list(names) == [f"x{place}" for place in numbered]:
        return
    for bound in bounds:
        index = sorted(str(name) for name in bound.index) if hasattr(bound, "iloc") else []
        if len(index) == len(names) and index not in (sorted(names), sorted(numbered)):
            lacking = next(name for name in names if name not in index)
            raise ValueError(f"bounds lacks the feature {lacking!r}, but names others; name each feature as X does.")
