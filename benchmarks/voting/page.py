"""The pages docs/voting.md, with its picture, and docs/multiparty.md, from the kept numbers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.common import Numbers, joined, make_plots, markdown, quick_note
from benchmarks.voting import page_multiparty
from benchmarks.voting.findings import (
    BEST,
    PAPER,
    derived,
    falls_short,
    percent,
    rows_of_equal_accuracy,
    rows_of_table,
    rows_of_votes,
)
from benchmarks.voting.page_papers import papers, shifts
from benchmarks.voting.plots import draw_all
from benchmarks.voting.runs import RESULTS
from benchmarks.voting.votes import OWN, STUDENTS

HEAD = ("method", "accuracy, %", "settings")
_SHIFT_PAPER = "AE-DPFL 83.8 (with domain adaptation 92.5, at ε = 2.8), DP-FedAvg 76.3, FedAvg 87.6"


def main() -> None:
    make_plots(__doc__, RESULTS, write_all)


def write_all(measured: Numbers, images: Path) -> None:
    """Both papers' pages, and the picture."""
    draw_all(measured, images)
    for name, page in (("voting.md", text), ("multiparty.md", page_multiparty.text)):
        (images.parent / name).write_text(page(measured), encoding="utf-8")


def text(measured: Numbers) -> str:
    """The whole page."""
    result = derived(measured)
    last = [make(result) for make in (_sweep, _records, _short)]
    return joined([_opening(result), papers(), *_tables(result), *shifts(result), *last, _AGAIN])


def _opening(result: Numbers) -> str:
    names = " and ".join(each["data"] for each in result["sets"])
    secure = result["secure"]
    ideal, tally = secure["ideal"], secure["tally"]
    best = BEST[0]
    return f"""# Votes on public records, measured again

The tables of *Voting-based Approaches for Differentially Private Federated Learning* (Zhu et al. 2020), made by
`unspoken`. Written by [`benchmarks/voting`](../benchmarks/voting): do not edit.{quick_note(result)}

This holds unless a section says otherwise (those on adaptation, on the size of models and on three parties have data
and models of their own):

- Data: {names}, {result["parties"]} parties. Three tenths of the test images are public and come without labels, the
  others are tested with, as in the voting paper.
- All methods work in one public feature space of 50 numbers and a constant: principal components of clustered patches
  of the public images. The paper's models see pixels and are convolutional networks, so its accuracies are given beside
  ours, but not to be compared in points.
- ε is that of all that is released, for replacing all records of one party; δ = 1e-3. The paper adds or removes a party
  instead, which costs votes √2 and `fedavg` 2 times less noise for the same ε: its promise is the weaker one.
- `fedavg` is linear. Rounds, clipping norm and steps (at a smaller ε, components) are chosen from four or five
  combinations on a tenth of each party's records kept aside, after trials of a dozen; so is the number of queries, from
  three. As in the papers, that choice is not covered by ε.
- Parties' own models are scikit-learn's `SVC` with its default settings. Queries are typical public records, in the
  middle of as many clusters (the default).
- A student is softmax regression of the queries alone, as in the paper (`spreading = false`), or of all public records,
  to which the winners' labels have spread (the default), or an `SVC` of these (`student = "sklearn.svm:SVC"`). All of
  these see the winners only, as talliers open them. "Totals spread" is for a sum, such as `secagg+`, by which the noisy
  totals become known: ε covers them, and they say more. Whatever a student does with what is known, and with public
  records, costs no privacy.
- Figures are means of {result["runs"]} runs with fresh noise ± the standard deviation of a single run; without privacy,
  of {result["runs"] if result["quick"] else 2} runs.
- Accuracy is measured with the ideal sum. One vote of {secure["queries"]} queries through three talliers
  ({secure["setting"]}): planned noise {tally["noise"] / ideal["noise"]:.4f} times the ideal sum's,
  {100 * tally["labels"]:.0f} % of winners right against {100 * ideal["labels"]:.0f} %, accuracy
  {100 * tally[best]:.1f} % against {100 * ideal[best]:.1f} % ({best})."""


def _tables(result: Numbers) -> Iterable[str]:
    yield "## Whole parties protected (Table 1)"
    for each in result["sets"]:
        for entry in each["tables"]:
            shifted = "domains" in entry["setting"]
            paper = (
                f"The paper, SVHN and MNIST to USPS, 200 parties, ε about 3.7: {_SHIFT_PAPER}."
                if shifted
                else f"The paper: {PAPER}."
                if "six" in entry["setting"]
                else ""
            )
            yield f"""### {entry["setting"]}, ε = {entry["epsilon"]:g}

{markdown(HEAD, rows_of_table(entry))}

{paper}""".rstrip()
    yield """Where domains differ, seven tenths of the parties have noisy images, the others faint ones that are moved
down and to the right; the public images and those tested with are moved to the left and have more contrast. Parties
that abstain from what they do not know then abstain from nearly everything, as nothing that is public looks like their
own; where public and private records are alike, abstaining makes winners clearer."""


def _sweep(result: Numbers) -> str:
    parts = []
    for each in result["sets"]:
        found = each["epsilons"]
        rows = [["`fedavg`, tuned", *(percent(point) for point in found["fedavg"])]]
        for label in found:
            if label in ("epsilons", "fedavg"):
                continue
            rows += [
                [f"{label}; {student}", *(percent(point[student]) for point in found[label])] for student in STUDENTS
            ]
        head = [f"{each['data']}, ε", *(f"{epsilon:g}" for epsilon in found["epsilons"])]
        parts.append(markdown(head, rows))
    shown = "\n\n".join([*parts, *_equal_accuracy(result)])
    return f"""## Against ε

![Accuracy of votes and of fedavg against ε.](images/voting_epsilon.png)

Six classes a party; accuracy in %. In the plot, the student is an `SVC`, and bars are one standard deviation. Noisy
totals say more than winners, most of all where there is much noise:

{shown}"""


def _equal_accuracy(result: Numbers) -> Iterable[str]:
    """The paper's other comparison, if more than one ε was measured."""
    epsilons = result["sets"][0]["epsilons"]["epsilons"]
    if len(epsilons) > 1:
        rows = [row for each in result["sets"] for row in rows_of_equal_accuracy(each)]
        yield f"""The ε with which votes are as good as `fedavg` is with ε = {epsilons[-1]:g}, on straight lines
over log ε between the means above. The paper has less than 65 % of DP-FedAvg's ε:

{markdown(("data", "votes", "ε", "of `fedavg`'s"), rows)}"""


def _records(result: Numbers) -> str:
    parts = []
    for each in result["sets"]:
        for entry in each["records"]:
            title = f"{entry['setting']}, ε = {entry['epsilon']:g}, δ = {entry['delta']:g}:"
            parts.append(f"{title}\n\n{markdown(HEAD, rows_of_votes(entry))}")
    if not parts:
        return ""
    shown = "\n\n".join(parts)
    return f"""## Single records protected (Table 2)

One record takes the place of one of k neighbours, so that votes of neighbours need k times less noise than for whole
parties (the paper's theorem has √k where k is right). The paper, three parties, Office-Caltech, ε about 4: kNN-DPFL
75.4 and 84.3 against DP-FedSGD 32.6 and 48.3 with AlexNet's features.

{shown}"""


def _short(result: Numbers) -> str:
    return f"""## Where it falls short

{falls_short(result, "fedavg")}
{_papers_student(result)}
- The space of few, good public features is `fedavg`'s best case: noise is added to 510 numbers. A network of pixels, as
  in the paper, has many times as many, and votes do not depend on it."""


def _papers_student(result: Numbers) -> str:
    """How votes do with the paper's own student, on which there are no claims."""
    leads = [
        100.0 * (entry["votes"][0][OWN]["mean"] - entry["fedavg"]["mean"])
        for each in result["sets"]
        for entry in each["tables"]
    ]
    told = ", ".join(f"{lead:+.1f}".replace("-", "−") for lead in leads)
    return f"""- The student of the paper learns from the queries alone. With it, votes of models lead `fedavg` by
  {told} points, in the order of the tables for whole parties. In the paper they lead by 1.9 on
  MNIST, and by 7.5 where domains differ."""


_AGAIN = """## Again

```sh
pip install -e '.[torch,benchmarks]'
OMP_NUM_THREADS=1 python -m benchmarks.voting.runs --mnist FOLDER  # the numbers: about half an hour
OMP_NUM_THREADS=1 python -m benchmarks.voting.runs --quick         # a small setting, in the terminal only
python -m benchmarks.voting.page                                   # this page, its picture, and multiparty.md
OMP_NUM_THREADS=1 python -m benchmarks.voting.speed                # speed
```

Fashion-MNIST is used if it is installed; if neither is there, scikit-learn's digits."""


if __name__ == "__main__":
    main()
