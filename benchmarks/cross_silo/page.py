"""The page docs/cross_silo.md and its pictures: the cross-silo figures with what they show, from the kept numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common import Numbers, joined, make_page, markdown, quick_note
from benchmarks.cross_silo.findings import GOAL, accuracy_rows, derived
from benchmarks.cross_silo.page_more import larger, network, pairs, samplings
from benchmarks.cross_silo.plots import draw_all
from benchmarks.cross_silo.runs import RESULTS
from unspoken.privacy.integer import LARGEST_PLANNED_EPSILON

_HERE = Path(__file__).parent
"""The parts of the page without numbers are in files here."""


def main() -> None:
    make_page(__doc__, RESULTS, "cross_silo.md", text, draw_all)


def text(measured: Numbers) -> str:
    """The whole page."""
    result = derived(measured)
    first, last = (_opening, _table), (_weakening, _training, _short)
    figures = (_figure_2, samplings, network, _figure_1, _sampling, _figure_3, _figure_4, larger, pairs)
    return joined([*(make(result) for make in (*first, *figures, *last)), _AGAIN])


def _table(result: dict[str, Any]) -> str:
    return _HERE.joinpath("paper.md").read_text(encoding="utf-8").strip()


def _training(result: dict[str, Any]) -> str:
    return _HERE.joinpath("training.md").read_text(encoding="utf-8").strip()


def _opening(result: dict[str, Any]) -> str:
    secure = result["secure"]
    ideal, secagg = secure["ideal"], secure["secagg"]
    return f"""# Cross-silo training, measured again

The figures of *Differentially private cross-silo federated learning* (Heikkilä, Koskela, Shimizu, Kaski & Honkela
2020), made by `unspoken`. Written by [`benchmarks/cross_silo`](../benchmarks/cross_silo): do not
edit.{quick_note(result)}

- Data: {result["data"]}; each row is centred by its own mean and brought to norm 1. The model is
  linear, unless a section says otherwise (the paper's has two hidden layers behind convolutions), so accuracies are not
  to be compared with the paper's.
- A record may be replaced by any other; ε is that of all rounds together, δ = 1e-5. Of 10 parties 3 collude with the
  coordinator, and the noise is enough without theirs. ε is computed numerically, by `unspoken.privacy.subsampled`.
- Points are means of {result["runs"]} runs with fresh noise and batches, unless a section says otherwise; bars go from
  the least to the best of them.
- Learning rates (of `fedavg`: the clipping norm) are the best of three on a tenth of the training records kept aside,
  for every method and point. That choice is not covered by ε. (The paper does not say how it chose its own.)
- Accuracy is measured with the ideal sum. One run of {secure["records"]:,} records through SecAgg: planned noise
  {secagg["noise"] / ideal["noise"]:.4f} times the ideal sum's, accuracy {100 * secagg["accuracy"]:.1f} % against
  {100 * ideal["accuracy"]:.1f} %."""


def _figure_2(result: dict[str, Any]) -> str:
    tables = []
    for sweep in result["accuracy"]:
        batch = sweep["rate"] * sweep["records"]
        what = f"{sweep['records']:,} records, {sweep['rounds']} rounds of {batch:,.0f} records on average"
        tables.append(f"{what}, accuracy in %:\n\n{markdown(*accuracy_rows(sweep))}")
    tables.append(f"ε of a whole party, accuracy in %:\n\n{markdown(*accuracy_rows(result['parties']))}")
    shown = "\n\n".join(tables)
    gaps = " ".join(
        f"With {sweep['records']:,} records that is at most {max(sweep['behind']):.1f} points of accuracy "
        f"({sum(sweep['behind']) / len(sweep['behind']):.1f} on average over ε), where secure sums are up to "
        f"{max(sweep['ahead']):.1f} points ahead of local privacy."
        for sweep in result["accuracy"]
    )
    return f"""## Accuracy (Figure 2)

![Accuracy of secure sums, a trusted curator, local privacy and others against ε.](images/cross_silo_accuracy.png)

With secure sums the total carries √(10/7) times a trusted curator's noise, as three colluders' shares do not count.
{gaps} Under local privacy every party's message must hide a record on its own, which is √10
times the curator's noise. Even with so much noise a linear model of these good features is found if ε or the number of
records is large; the gap grows where privacy is strict or records are few. `fedsgd` makes five noisy steps at each
party between averages, with as much noise as `local`. `fedavg` protects whole parties, a far stronger promise, for
which ten parties are too few.

{shown}"""


def _figure_1(result: dict[str, Any]) -> str:
    rates = result["rates"]
    third = min(range(len(rates["malicious"])), key=lambda place: abs(rates["malicious"][place] - 33))
    at = {slack: curve[third] for slack, curve in rates["curves"].items()}
    return f"""## Sampling when some know their part of the batch (Figure 1)

![Effective sampling rate of batches without replacement against malicious parties.](images/cross_silo_sampling.png)

Colluders know which of their own records are in a batch of fixed size, so the rest must be honest parties' records.
With {rates["malicious"][third]} of {rates["parties"]} parties malicious the rate is {at["0"]:.4f} in the worst case. It
is {at["1e-10"]:.4f} except with probability 1e-10 in each round, and {at["1e-06"]:.4f} except with probability 1e-6.
With Poisson sampling it is {rates["poisson"]:.4f}, whatever they know."""


def _sampling(result: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['noise']:g}",
            f"{row['add-remove']:.2f}",
            f"{row['poisson']:.2f}",
            f"{row['without-replacement']:.2f}",
            f"{row['without-replacement'] / row['poisson']:.2f}",
        ]
        for row in result["sampling"]
    ]
    head = ["σ", "Poisson, add or remove", "Poisson, replace", "without replacement, replace", "ratio of the last two"]
    return f"""## The honest price of batches without replacement

The paper uses the accounting of Poisson sampling for batches of fixed size, too. But when a record leaves such a batch,
another record takes its place, which may be its opposite. So the change is twice as large, and its direction may differ
from round to round. ε of 1,250 rounds at q = 0.008 and δ = 1e-5, with σ the noise over the clipping norm, and without
malicious parties:

{markdown(head, rows)}

So Poisson sampling is better in both ways, and the default."""


def _figure_3(result: dict[str, Any]) -> str:
    nodes = result["nodes"]
    rows = [
        ["everyone's work added up", *(f"{fold:.1f}" for fold in nodes["one_process"])],
        ["machines of their own", *(f"{fold:.2f}" for fold in nodes["own_machines"])],
    ]
    return f"""## Compute nodes (Figure 3)

![Time of a round over the ideal sum's against the number of compute nodes.](images/cross_silo_nodes.png)

A round of a network of {nodes["weights"]:,} weights, {nodes["parties"]} parties with 600 records each, q = 0.01, in
units of the same round with the ideal sum. "Everyone's work added up" is the local engine's processor time
({nodes["ideal"]:.1f} s for the ideal sum): one process expands the masks of all parties at all nodes, so it grows with
their number. "Machines of their own" is how the paper counts: one party, then the busiest node, then the coordinator,
one after the other and without the network ({nodes["ideal_apart"]:.2f} s for the ideal sum).

{markdown(["nodes", *map(str, nodes["nodes"])], rows)}"""


def _figure_4(result: dict[str, Any]) -> str:
    found = result["projections"]
    sizes = sorted({point["size"] for points in found["curves"].values() for point in points})
    rows = []
    for kind, points in found["curves"].items():
        by = {point["size"]: f"{100 * point['mean']:.1f}" for point in points}
        rows.append([kind, *(by.get(size, "") for size in sizes), ""])
    rows.append(["no projection", *("" for _ in sizes), f"{100 * found['none']['mean']:.1f}"])
    head = ["k", *(f"{size:,}" for size in sizes), f"{found['full']:,}"]
    return f"""## Projections (Figure 4)

![Accuracy against the dimension that gradients are projected to.](images/cross_silo_projection.png)

Gradients of {found["full"]:,} numbers as k, ε = {found["epsilon"]:g}, accuracy in %:

{markdown(head, rows)}

The structured projection is a product of two small matrices of signs, one of them left out where k allows. Gradients
are clipped after it, so it costs nothing in δ, and hardly any time. The paper's Gaussian matrix takes d·k numbers a
round at every party (and is left out above k = 512 here). A projected gradient is unbiased, but its squared error is
about d/k times the gradient's square, so steps must be shorter."""


def _weakening(result: dict[str, Any]) -> str:
    parts = []
    for entry in result["weakening"]:
        head = ["colluders", *(str(row["colluding"]) for row in entry["rows"])]
        rows = [["ε", *(_bounded(row["epsilon"]) for row in entry["rows"])]]
        parts.append(f"{entry['parties']} parties, planned for {entry['colluding']}:\n\n{markdown(head, rows)}")
    tables = "\n\n".join(parts)
    return f"""## More colluders than planned for

If more parties collude than a plan for ε = 1 allows, its noise still gives the larger ε below (`plan.weakening()`).

{tables}"""


def _bounded(epsilon: float) -> str:
    return f"{epsilon:.2f}" if epsilon <= LARGEST_PLANNED_EPSILON else f"above {LARGEST_PLANNED_EPSILON:g}"


def _short(result: dict[str, Any]) -> str:
    many, parties = max(result["accuracy"], key=lambda sweep: int(sweep["records"])), result["parties"]
    largest, ahead = many["epsilons"][-1], many["ahead"][-1]
    few = max(point["mean"] for point in next(iter(parties["curves"].values())))
    return f"""## Where it falls short

{_slow(result["nodes"])}- With {many["records"]:,} records and ε = {largest:g}, secure sums are {ahead:.1f} points
  ahead of local privacy, which needs no secure sum.
- Projections cost a few points of accuracy where they save much, as in the paper's Figure 4; a model as small as this
  one hardly needs them.
- The data is a stand-in: features of a network trained on ImageNet, and mostly a linear model on top.
- `fedavg` with ten parties has at most {100 * few:.1f} % accuracy, up to ε = {parties["epsilons"][-1]:g}."""


def _slow(nodes: dict[str, Any]) -> str:
    """That secure rounds miss the goal, if they do."""
    eight = nodes["nodes"].index(8) if 8 in nodes["nodes"] else 0
    together, apart = nodes["one_process"][eight], nodes["own_machines"][eight]
    if together <= GOAL:
        return ""
    return f"""- The local engine's secure round takes {together:.1f} times the ideal round's work with
  {nodes["nodes"][eight]} nodes, where {GOAL:g} was the goal: each party draws noise for every weight, and every mask is
  expanded twice, at its party and at its node. On machines of their own, where this work is spread out, the ratio is
  {apart:.2f}.
"""


_AGAIN = """## Again

```sh
pip install -e '.[torch,benchmarks]'
OMP_NUM_THREADS=1 python -m benchmarks.cross_silo.runs --jobs 2 --cifar FEATURES.npz  # the numbers: below an hour
OMP_NUM_THREADS=1 python -m benchmarks.cross_silo.runs --quick                        # small, in the terminal only
python -m benchmarks.cross_silo.page                                                  # this page, its pictures
OMP_NUM_THREADS=1 python -m benchmarks.cross_silo.speed                               # speed
```

Without `--cifar`, the data is Fashion-MNIST if it is installed, else scikit-learn's digits."""


if __name__ == "__main__":
    main()
