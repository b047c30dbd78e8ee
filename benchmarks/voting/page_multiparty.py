"""The page docs/multiparty.md: where the multiparty paper is, and its comparison, from the kept numbers."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.common import Numbers, joined, markdown, quick_note
from benchmarks.voting.findings import derived, falls_short, rows_of_multiparty
from benchmarks.voting.page_papers import HEAD

_ROWS = [
    (
        "neighbours: all data of one party",
        '`unit = "party"`',
        "a single record may change all votes of its party, so it gets the same noise",
    ),
    (
        "Algorithm 1, Theorem 1: majority-voted ERM",
        '`multiparty`, `labels = "majority"`',
        "1/λ for logistic loss, where the paper has 2/λ; Gaussian noise where it is shorter than the paper's, unless "
        "`noise` names one",
    ),
    (
        "Algorithm 2, Theorem 3: weighted ERM",
        '`labels = "weighted"`',
        "1/(λM) for logistic loss, where the paper has 2/(λM). M is the number of parties that the study planned "
        "with: whoever drops out, λ grows instead",
    ),
    (
        "local classifiers of any kind",
        "`model`, `model_options`",
        "a voter that fails, or abstains, votes for the first class, since nobody may see it",
    ),
    (
        "Theorem 4, Lemmas 5 and 6",
        "a note of `unspoken plan`",
        "for the noise in use: Gaussian noise has another tail than the paper's. For more than two classes the "
        "paper's 32 is 64K, and where parties may drop out each term has its worst λ",
    ),
    (
        "B.1: one party's minimiser, multiclass",
        "`helmet` with `[parties] count = 1`",
        "D/(Nλ) with D at most 2√2, where the paper has 2√2/(Nλ)",
    ),
    ("B.2, B.3: votes, multiclass", '`learner = "softmax"`', "√2/λ and √2/(λM), as in the paper"),
    (
        "B.4: parameter averaging",
        '`labels = "average"`',
        "2R/M for the longest minimiser R, at most the paper's 2√2/(Mλ); rounding is counted",
    ),
    (
        "exact minimisers",
        "`learners/certified.py`",
        "a minimiser is certified by its gradient, and what that leaves open is in the sensitivity",
    ),
    (
        "who adds the noise",
        "`plan`, the guarantee",
        "the trainer sees all votes, so all parties trust it; with noise of the parties' own use [`voting`](voting.md)",
    ),
]


def text(measured: Numbers) -> str:
    """The whole page."""
    result, table = derived(measured), measured["multiparty"]
    return joined([_opening(result), _papers(), _accuracy(table), _bounds(table), _short(result), _AGAIN])


def _opening(result: Numbers) -> str:
    table = result["multiparty"]
    return f"""# A trusted trainer, measured

*Learning Privately from Multiparty Data* (Hamm, Cao & Belkin 2016): parties' classifiers vote on public records, and a
trainer whom all trust learns from the votes. Made by `unspoken`; written by
[`benchmarks/voting`](../benchmarks/voting): do not edit.{quick_note(result)}

- Data: {table["data"]} in 20 principal components of the feature space of [the voting tables](voting.md),
  {table["each"]} records at each party unless said otherwise, and {table["public"]:,} public records without labels.
- The method is `multiparty`: softmax regression of the public records, with Gaussian noise for whole parties,
  δ = 1e-5. λ is the best of three on records kept aside; as in the paper, that choice is not covered by ε.
- Figures are means of {result["runs"]} runs with fresh noise ± the standard deviation of a single run;
  without noise, of one run; for a single party, of some parties ± the standard deviation between them."""


def _papers() -> str:
    return f"""## From the paper to the code

{markdown(HEAD, _ROWS)}"""


def _accuracy(table: dict[str, Any]) -> str:
    head = ["parties, labels", *(f"ε = {epsilon:g}" if epsilon else "no noise" for epsilon in table["epsilons"])]
    return f"""## Whom to learn from

Parties are all alike, or all records are at parties with six classes each. A single party's model has no noise, as
nobody else sees it. Accuracy in %:

{markdown(head, rows_of_multiparty(table))}

A majority may be turned by one party on every record, so its noise does not shrink with the number of parties; that of
shares of the votes does, and so does that of averages."""


def _bounds(table: dict[str, Any]) -> str:
    last = table["parties"]
    measured = {row["labels"]: row["cells"][0] for row in table["rows"] if row["parties"] == f"{last:,}"}
    rows = []
    for labels, paper, units in (
        ("average", "2√2/(Mλ)", 2.0 * math.sqrt(2.0) / last),
        ("majority", "√2/λ", math.sqrt(2.0)),
        ("weighted", "√2/(Mλ)", math.sqrt(2.0) / last),
    ):
        strength, found = measured[labels]["regularization"], measured[labels]["sensitivity"]
        rows.append([labels, f"{strength:g}", paper, f"{units / strength:.4g}", f"{found:.4g}"])
    return f"""## Sensitivities

The supplement has no accuracies; its sensitivities are these, and ours, for M = {last:,} and the λ that is chosen at
the smallest ε above:

{markdown(["labels", "λ", "the paper", "that is", "unspoken"], rows)}

No model is nearly as long as the paper's bound for averages allows: with noise for the longest one, averages are ahead
of votes here, under noise. Votes remain for parties whose models differ in kind."""


def _short(result: Numbers) -> str:
    return f"""## Where it falls short

The paper holds votes against each other and against a party alone; here:

{falls_short(result, "multiparty")}"""


_AGAIN = """## Again

```sh
pip install -e '.[torch,benchmarks]'
OMP_NUM_THREADS=1 python -m benchmarks.voting.runs --only multiparty  # the numbers: some minutes
python -m benchmarks.voting.page                                      # this page, and that of the votes
```"""
