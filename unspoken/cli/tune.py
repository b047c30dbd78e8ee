"""`unspoken tune`: a method's settings, chosen on public labelled records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unspoken import writing
from unspoken.cli.answers import print_json
from unspoken.cli.program import AsJson, StudyFile, explained, remark
from unspoken.errors import UnspokenError

if TYPE_CHECKING:
    from unspoken.methods.base import Settings
    from unspoken.simulation.tuning import Tuned
    from unspoken.study import Study


@explained
def tune(
    path: StudyFile,
    public: Annotated[
        Path, typer.Option(help="Public or made-up records with labels: CSV, Parquet or NPZ, as the study says.")
    ],
    epsilons: Annotated[str | None, typer.Option(help="Values of epsilon, as 0.1,1,3; without: the study's.")] = None,
    split: Annotated[
        str, typer.Option(help="How records are dealt to parties: iid, by-class, dirichlet:A, or classes:K.")
    ] = "iid",
    repeats: Annotated[int, typer.Option(help="Times that records are split anew, to learn and to measure.")] = 3,
    seed: Annotated[int, typer.Option(help="The public seed of these splits.")] = 0,
    output: Annotated[Path | None, typer.Option(help="A new study file with the settings for one epsilon.")] = None,
    as_json: AsJson = False,
) -> None:
    """Choose settings (of helmet: regularization, radius, norm) on public records. Private records are not touched."""
    from unspoken.study import read_study

    study, text = read_study(path), path.read_text(encoding="utf-8")
    wanted = _numbers(epsilons)
    if output is not None:
        _check_output(study, text, wanted, output)
    from unspoken.methods.base import Trials
    from unspoken.simulation.tuning import tune_file, with_settings

    tuned = tune_file(study, public, wanted, Trials((), split, repeats, seed))
    if output is not None:
        (choice,) = tuned.choices
        writing.write(output, with_settings(text, {**choice.settings, **_promise(wanted)}, str(path)))
    remark(tuned.remarks)
    if as_json:
        print_json({**tuned.to_json(), "public": str(public), "file": None if output is None else str(output)})
        return
    _show(tuned, public, output)


def _check_output(study: Study, text: str, wanted: list[float] | None, output: Path) -> None:
    """Refuse what could not be written, before settings are chosen, which takes a while."""
    from unspoken.simulation.tuning import with_settings

    if wanted is not None and len(wanted) > 1:
        named = ",".join(f"{epsilon:g}" for epsilon in wanted)
        raise UnspokenError(f"--output takes the settings of one epsilon, but --epsilons is {named!r}; name one.")
    writing.check_free(output, "choose another name")
    tried = {"method": {"regularization": 1.0}, "data": {"norm": study.data.norm}}
    with_settings(text, {**tried, **_promise(wanted)}, str(study.source))


def _promise(wanted: list[float] | None) -> Settings:
    """The epsilon that is named, in place of what the study says of its noise."""
    return {} if wanted is None else {"privacy": {"epsilon": wanted[0], "noise_multiplier": None}}


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise UnspokenError(f"--epsilons is {text!r}, but should be numbers, as 0.1,1,3.") from None


def _show(tuned: Tuned, public: Path, output: Path | None) -> None:
    print(f"Chosen on {tuned.records:,} public records ({public}); no private record was looked at.")
    for choice in tuned.choices:
        keys = [
            f"[{section}] {key} {'left out' if value is None else f'= {value:g}'}"
            for section, keys in choice.settings.items()
            for key, value in keys.items()
        ]
        print(f"epsilon = {choice.epsilon:g}: {', '.join(keys)}")
        reached = f"{100 * choice.accuracy:.1f} %"
        if choice.deviation is not None:
            reached += f" ±{100 * choice.deviation:.1f} (standard deviation over splits)"
        print(f"  accuracy on public records, with the study's noise: {reached}")
    if output is not None:
        print(f"Study: {output}")
