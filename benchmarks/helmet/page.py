"""The page docs/helmet.md: how accurate blind averaging is, from the kept numbers."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.common import Numbers, joined, make_page, markdown, quick_note
from benchmarks.helmet import paper_page
from benchmarks.helmet.accuracy import RESULTS, UNITS
from benchmarks.helmet.figures import draw_all

_NAMES = {"digits": "scikit-learn's digits", "cifar-10": "CIFAR-10 as features of a public ImageNet encoder"}
_PROTECTED = {"record": "One record protected", "party": "Whole parties protected"}
_SPREAD = {"iid": "spread at random", "by-class": "one class a party"}
_LEARNERS = {"softmax": "softmax", "svm": "SVM"}


def main() -> None:
    make_page(__doc__, RESULTS, "helmet.md", text, draw_all)


def text(numbers: Numbers) -> str:
    """The whole page."""
    sections = [_opening(numbers)]
    for name in _NAMES:
        if "rows" in numbers.get(name, ()):
            sections += _data_set(name, numbers[name], numbers.get(f"{name}-pooled"))
    return joined([*sections, _again(), *paper_page.sections(numbers)])


def _opening(numbers: Numbers) -> str:
    return (
        "# Blind averaging, measured\n\n"
        "Accuracy in % of `helmet` on test records, mean of some runs with fresh noise, δ = 10⁻⁵; in brackets the\n"
        "same average without noise. Nothing is tuned on test records: Λ is that of the method's own rule\n"
        "(`methods/helmet_rules.py`, whose numbers were chosen on other data), or a fixed one. The rule's Λ stands\n"
        "behind each accuracy. Every record is centred by its own mean and has norm 1; there is no intercept."
        + quick_note(numbers)
    )


def _data_set(name: str, result: Numbers, pooled: float | None) -> Iterator[str]:
    alone = "" if pooled is None else f" All records in one\nplace, without privacy: {pooled:.1f}."
    yield (
        f"## {_NAMES[name]}\n\n"
        f"{result['records']:,} records over {result['parties']:,} parties; {result['repeats']} runs a cell.{alone}"
    )
    for unit in UNITS:
        rows = [row for row in result["rows"] if row["unit"] == unit]
        epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
        lines: dict[tuple[str, ...], list[str]] = {}
        for row in rows:
            chosen = "by rule" if row["by_rule"] else f"{row['regularization']:g}"
            key = (_LEARNERS[row["learner"]], _SPREAD[row["split"]], chosen)
            behind = f", Λ = {row['regularization']:g}" if row["by_rule"] else ""
            lines.setdefault(key, []).append(f"{row['accuracy']:.1f} ({row['no_noise']:.1f}{behind})")
        colluding = result["colluding"][unit]
        whom = "half of the parties colluding" if colluding == 0.5 else "nobody colluding"
        head = ["learner", "records", "Λ", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
        yield f"{_PROTECTED[unit]}, {whom}:\n\n" + markdown(head, [[*key, *cells] for key, cells in lines.items()])


def _again() -> str:
    return (
        "Measured by `python -m benchmarks.helmet.accuracy --cifar FILE`; this page is written by\n"
        "`python -m benchmarks.helmet.page`."
    )


if __name__ == "__main__":
    main()
