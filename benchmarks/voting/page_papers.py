"""Parts of docs/voting.md: where the paper's algorithms and theorems are, and the tables of other domains."""

from __future__ import annotations

from typing import Any

from benchmarks.common import Numbers, markdown
from benchmarks.voting.findings import percent

HEAD = ("in the paper", "here", "what is different, and why")
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
    (
        "Algorithm 2, kNN-DPFL",
        '`ballots = "neighbours"`, `neighbours`',
        "every party needs more than k records, and k is the same at all (the paper's text has a kᵢ for each); records "
        "are the features that φ made of them, so φ must be public",
    ),
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
        "Theorem 4: Qα/(2σ²), Qα/σ², Qα/(kσ²); Lemmas 7 and 8",
        "`Voting.sensitivity`, `privacy/accounting.py`",
        "exact δ(ε) of one Gaussian release instead of Rényi bounds. For records with neighbours √2/k is right, where "
        "the paper has √(2/k)",
    ),
    (
        "Remark 1: models for whole agents, neighbours for records",
        "the note of `unspoken plan` on the other unit",
        "what the same noise promises for one record, or for a whole party, with either kind of ballot",
    ),
    (
        "Theorem 15, Lemma 14: data-dependent ε",
        "`--private-analysis`, `privacy/votes.py`",
        "Lemma 14 does not hold; Theorem 6 of Papernot et al. 2018 instead, from the ballots that were counted, "
        "whichever of two neighbours they are, and against colluders who know their part of the noise (proved there). "
        "With neighbours a record's s would be 2/k², where Theorem 15 has 2/k. It is secret",
    ),
    (
        "Lemma 11/13: how sure a label is",
        "the note on leads of `unspoken plan`",
        "the chances that noise lifts another class above the leader, added up over the other classes; where no lead "
        "is enough, the exact chance of a label that has all votes. The lead that the paper gives below its lemma "
        "lacks the factor σ",
    ),
    (
        "communication: C·Q numbers an agent instead of d·T",
        "`upload_bytes` of a plan; kB a party in the tables",
        "with talliers C·Q numbers of 8 bytes and some seeds: all shares of a ballot but one are seeds of 32 bytes",
    ),
    (
        "1: no sampling of voters, no screening of queries",
        "the same",
        "for the paper's reason: whoever reads the messages sees who takes part, and which queries are answered",
    ),
    ("Figure 1, DP-FedAvg, DP-FedSGD", "`fedavg`, `fedsgd`", "ε of all rounds by privacy loss distributions"),
    (
        "Appendix A and C: Example 5, Proposition 10, the bound with √d",
        "no counterpart",
        "arguments against FedAvg without anything to compute; what they come to is in the tables, and in that on the "
        "size of models",
    ),
    (
        "Tables 1 and 2: SVHN, USPS, Office-Caltech",
        "MNIST in two looks → scikit-learn's digits",
        "no package that holds these data was found on PyPI, npm or Debian: `svhn`, `office31` and "
        "`extra-keras-datasets` fetch them at run time",
    ),
    (
        "abstract: 2 to 12 points above DP-FedAvg at the same ε; below 65 % of its ε at the same accuracy",
        'tables below; "Against ε"',
        "in this feature space `fedavg` is a stronger rival than the paper's",
    ),
]


def papers() -> str:
    """Where everything of the paper is."""
    return f"""## From the paper to the code

{markdown(HEAD, _VOTING)}

"Rounds" of a plan are how often parties are asked for something: 1 for a vote. `party_messages` is how often a party
has something to send: once to talliers or nodes, several times in `secagg+`, which exchanges keys and shares first. A
vote with ε = 4.28 for replaced parties has ε = 2.78 for parties left out, under the same noise (δ = 1e-3)."""


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
    cost = row.get("dependent")
    told = "" if cost is None else f"{cost['epsilon']:.3g} / {cost['epsilon_colluding']:.3g}"
    found = percent(row) + ("" if row["spread"] is not None else " (one run)")
    return [row["method"], found, epsilon, told, f"{row['bytes'] / 1000:,.1f}"]


_COLUMNS = ("method", "accuracy, %", "ε", "on these records: outsiders / one party", "kB a party")


def _adapted(table: dict[str, Any]) -> str:
    return f"""## Other domains, with adaptation (Table 1, lower half)

{table["setting"]}: seven tenths of the {table["parties"]} parties have images lit from one side and noisy,
the others plain ones. All are 8×8 pixels; networks have 64 hidden units. ε is the paper's kind: a party is left out or
put in, δ = 1e-3. Votes are on {_queries(table)} queries, by talliers, and a student of softmax learns from the winners
and the labels that spread from them. "+DA": parties align their records to the public ones first (CORAL). Means of
{table["runs"]} runs; kB are those of three talliers, of `secagg+`, or (without privacy) in the open. The paper,
SVHN and MNIST → USPS, 200 parties: FedAvg 87.6, +DA 86.9; DP-FedAvg 76.3 (ε = 3.7), +DA 71.2 (ε = 3.6); AE-DPFL 83.8
(ε = 3.6), +DA 92.5 (ε = 2.8).

{markdown(_COLUMNS, [_row(row) for row in table["rows"]])}

The fourth column is the data-dependent ε of the winners; these records are public, so it may be shown here."""


def _queries(table: dict[str, Any]) -> int:
    """How many queries the votes of a table are on."""
    return next(int(row["options"]["queries"]) for row in table["rows"] if "voting" in row["method"])


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

The same networks of pixels, trained by `fedavg` (the better of two numbers of rounds on records kept aside), and as
voters and as the student, which learns from the winners, of `voting`: {table["setting"]},
{table["parties"]} parties, ε = {table["promise"]["epsilon"]:g} for parties left out or put in, δ = 1e-3. Bytes
are those of `secagg+` and of three talliers. Means of {table["runs"]} runs.

{markdown(head, rows)}"""


def _three(table: dict[str, Any]) -> str:
    return f"""## Three parties, single records (Table 2, with its baselines)

{table["setting"]}: one party's images are lit from one side and noisy, another's plain, the third's plain and
moved by a pixel. All are 8×8 pixels. δ = {table["delta"]:g}, means of {table["runs"]} runs; votes are by talliers.
`fedavg` is not here: among three parties none can be hidden (the paper's DP-FedAvg has ε = 47). The paper,
Office-Caltech, to W and to D: AlexNet's features: FedAvg 90.5 and 96.8; DP-FedAvg 28.1 and 48.2 (ε about 47);
DP-FedSGD 32.6 and 48.3 (ε = 4), 75.2 (ε = 12.4) and 83.7 (ε = 7.9); kNN-DPFL 75.4 (ε = 3.9) and 84.3 (ε = 3.7).
ResNet50's: FedAvg 96.5 and 97.8; DP-FedSGD 25.8 and 42.7 (ε = 4); kNN-DPFL 86.3 (ε = 2.8) and 91.9 (ε = 2.0).

{markdown(_COLUMNS, [_row(row) for row in table["rows"]])}

{_chosen(table)}

The fourth column is the data-dependent ε of the winners. Outsiders know nobody's noise, so their ε is smaller than the
planned one on any records. With the leads that three parties can give, these records lower neither any further."""


def _chosen(table: dict[str, Any]) -> str:
    """How settings were chosen, and what the chosen votes come to beside fedsgd's network at the same ε."""
    votes = next(row for row in table["rows"] if row.get("chosen"))
    network = next(row for row in table["rows"] if "`fedsgd`, mlp" in row["method"])
    less = network["bytes"] / votes["bytes"]
    return f"""Rounds and steps of `fedsgd` are the better of two pairs, and "chosen" are the best of the votes, on a
tenth of each party's records kept aside. At the same ε the chosen votes have {100 * votes["mean"]:.1f} % where the
network of `fedsgd` has {100 * network["mean"]:.1f} %, and a party sends {less:.0f} times less."""
