"""Parts of docs/voting.md: where the papers' algorithms and theorems are, and the tables of other domains."""

from __future__ import annotations

from typing import Any

from benchmarks.common import Numbers, markdown
from benchmarks.voting.findings import percent

_HEAD = ("in the paper", "here", "what is different, and why")
_VOTING = [
    (
        "Definition 2: a whole agent added or removed",
        '`unit = "party"`, `adjacency = "add-remove"`',
        "who takes part is known anyway, so a party without records takes part with empty ballots. The default is "
        '`"replace"`, the stronger promise',
    ),
    (
        "Definition 3: a record added or removed",
        '`unit = "record"`',
        "the same noise for both relations; groups of k records, too",
    ),
    (
        "Algorithm 1, AE-DPFL",
        '`voting`, `ballots = "ensemble"`',
        "any scikit-learn or torch classifier votes (`model`, `model_options`); queries may be typical records "
        "instead of the first; labels may spread to the other public records before the student learns",
    ),
    (
        "Algorithm 1, line 1: domain adaptation",
        '`adaptation = "coral"` of `voting` and `fedavg`; `fit(X, y, public=…)` of one\'s own voters',
        "second moments are aligned (`learners/coral.py`), where the paper trains an adversary. Refused where one "
        "record is to be one of k neighbours",
    ),
    ("Algorithm 2, kNN-DPFL", '`ballots = "neighbours"`', "every party needs more than k records"),
    (
        "MPC-vote with talliers",
        '`protocol = "tally"`',
        "3, 5 or 7 talliers; each query's winner is all that opens, even if a minority colludes. With a sum the noisy "
        "totals become known, under the same ε",
    ),
    (
        "noise shares σ²/N",
        "`methods/planning/mechanisms.py`",
        "sized for the honest parties that are left when colluders' shares are known and others dropped out; whole "
        "numbers, added after rounding",
    ),
    (
        "Theorem 4: Qα/(2σ²), Qα/σ², Qα/(kσ²)",
        "`Voting.sensitivity`, `privacy/accounting.py`",
        "exact δ(ε) of one Gaussian release instead of Rényi bounds. For records with neighbours √2/k is right, where "
        "the paper has √(2/k)",
    ),
    (
        "Theorem 15, Lemma 14: data-dependent ε",
        "`--private-analysis`, `privacy/votes.py`",
        "Lemma 14 does not hold; Theorem 6 of Papernot et al. 2018 instead, from the ballots that were counted, "
        "whichever of two neighbours they are, and against colluders who know their part of the noise (proved there). "
        "It is secret",
    ),
    (
        "Lemma 11/13: how sure a label is",
        "the note on leads of `unspoken plan`",
        "exact, by the union over the other classes",
    ),
    ("DP-FedAvg, DP-FedSGD", "`fedavg`, `fedsgd`", "ε of all rounds by privacy loss distributions"),
    (
        "Example 5, Propositions 10: what clipping does to averages",
        "no counterpart",
        "an argument against FedAvg without anything to compute; what it comes to is in the tables",
    ),
    (
        "Tables 1 and 2: SVHN, USPS, Office-Caltech",
        "MNIST in two looks → scikit-learn's digits",
        "no package on PyPI, npm or Debian holds these data: `svhn`, `office31` and `extra-keras-datasets` fetch them "
        "at run time",
    ),
]
_MULTIPARTY = [
    (
        "Algorithm 1, Theorem 1: majority-voted ERM",
        '`multiparty`, `labels = "majority"`',
        "1/λ for logistic loss, where the paper has 2/λ; Gaussian noise as well as the paper's (`noise`)",
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
        "for the noise in use: Gaussian noise has another tail than the paper's",
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
        "the trainer sees all votes, so all parties trust it; with noise of the parties' own use `voting`",
    ),
]


def papers() -> str:
    """Where everything of both papers is."""
    return f"""## From the papers to the code

*Voting-based approaches*:

{markdown(_HEAD, _VOTING)}

*Learning privately from multiparty data* (the supplement):

{markdown(_HEAD, _MULTIPARTY)}

"Rounds" of a plan are how often parties are asked for something: 1 for a vote or for `multiparty`. `party_messages` is
how often a party has something to send: once to talliers, nodes or a trainer, several times in `secagg+`, which
exchanges keys and shares first. A vote with ε = 4.28 for replaced parties has ε = 2.78 for parties left out,
under the same noise."""


def shifts(result: Numbers) -> list[str]:
    """The tables of other domains, sizes of networks, and three parties, as far as they were measured."""
    made = {"adapted": _adapted, "sizes": _sizes, "three": _three}
    found = [make(result[name]) for name, make in made.items() if name in result]
    if missing := [name for name in made if name not in result]:
        found.append(
            f"""## Not measured yet

`python -m benchmarks.voting.runs --mnist FOLDER --only {" ".join(missing)}` measures what is missing here: Table 1 with
domain adaptation ("+DA" of votes and `fedavg`) and networks of several sizes."""
        )
    return found


def _row(row: dict[str, Any]) -> list[str]:
    epsilon = "–" if row["epsilon"] is None else f"{row['epsilon']:.3g}"
    found = row.get("dependent")
    told = "" if found is None else f"{found['epsilon']:.3g} / {found['epsilon_colluding']:.3g}"
    return [row["method"], percent(row), epsilon, told, f"{row['bytes'] / 1000:,.1f}"]


_COLUMNS = ("method", "accuracy, %", "ε", "on these records: outsiders / one party", "kB a party")


def _adapted(table: dict[str, Any]) -> str:
    return f"""## Other domains, with adaptation (Table 1, below)

{table["setting"]}: seven tenths of the {table["parties"]} parties have images lit from one side and noisy,
the others plain ones. All are 8×8 pixels; networks have 64 hidden units. ε is the paper's kind: a party is left out or
put in, δ = 1e-3.
"+DA": parties align their records to the public ones first (CORAL). Means of {table["runs"]} runs. The paper,
SVHN and MNIST → USPS: FedAvg 87.6, +DA 86.9; DP-FedAvg 76.3 (ε = 3.7), +DA 71.2; AE-DPFL 83.8 (ε = 3.6), +DA 92.5
(ε = 2.8).

{markdown(_COLUMNS, [_row(row) for row in table["rows"]])}

The fourth column is the data-dependent ε of the winners; these records are public, so it may be shown here."""


def _sizes(table: dict[str, Any]) -> str:
    rows = [
        [
            str(row["hidden"]),
            f"{row['weights']:,}",
            percent(row["fedavg"]),
            f"{row['fedavg']['bytes'] / 1000:,.0f}",
            percent(row["voting"]),
            f"{row['voting']['bytes'] / 1000:,.0f}",
        ]
        for row in table["rows"]
    ]
    head = ("hidden layers", "weights", "`fedavg`, %", "kB a party", "`voting`, %", "kB a party")
    return f"""## The size of models

The same networks of pixels, trained by `fedavg` (the better of two numbers of rounds on records kept aside) and as
voters and student of `voting`: {table["setting"]}, {table["parties"]} parties,
ε = {table["promise"]["epsilon"]:g} for parties left out or put in, δ = 1e-3. Bytes
are those of `secagg+` and of three talliers. Means of {table["runs"]} runs.

{markdown(head, rows)}"""


def _three(table: dict[str, Any]) -> str:
    return f"""## Three parties, single records (Table 2, with its baselines)

{table["setting"]}, δ = {table["delta"]:g}, means of {table["runs"]} runs. The paper, Office-Caltech, to W and to D:
AlexNet's features: FedAvg 90.5 and 96.8; DP-FedAvg 28.1 and 48.2 (ε about 47); DP-FedSGD 32.6 and 48.3 (ε = 4), 75.2
(ε = 12.4) and 83.7 (ε = 7.9); kNN-DPFL 75.4 (ε = 3.9) and 84.3 (ε = 3.7). ResNet50's: DP-FedSGD 25.8 and 42.7,
kNN-DPFL 86.3 (ε = 2.8) and 91.9 (ε = 2.0).

{markdown(_COLUMNS, [_row(row) for row in table["rows"]])}

Settings are few, and were not chosen on records kept aside. `fedsgd` has 20 rounds of 5 steps of size 5, the second
setting that was tried: with the first (10 rounds, steps of size 1) it had 21 % (linear) and 18 % (mlp) of the same
test records. Votes are shown for all that were tried; an earlier pair of runs had 42, 46 and 39 %, so their order says
nothing. The best votes and the network of `fedsgd` are equally good here, at the same ε; votes are some forty times
smaller, but the paper's lead in accuracy is not seen. Nor does the larger model cost `fedsgd` accuracy at this size."""
