"""The page's parts on the other sampling, the paper's network, larger ones, and pairwise masks."""

from __future__ import annotations

from typing import Any

from benchmarks.common import markdown
from benchmarks.cross_silo.findings import accuracy_rows


def samplings(result: dict[str, Any]) -> str:
    """Figure 2 with batches of fixed size."""
    found = result["samplings"]
    head, rows = accuracy_rows(found)
    noise = [[f"noise, {name}", *(f"{each:.2f}" for each in values)] for name, values in found["noise"].items()]
    without = found["upload"] / 1e6
    lists = found["upload_by_tokens"] / 1e6 - without
    return f"""## Both samplings (Figure 2)

![Accuracy with Poisson sampling and with batches of fixed size against ε.](images/cross_silo_samplings.png)

{found["data"]}, {found["records"]:,} records, {found["rounds"]} rounds at the rate {found["rate"]:g}, mean of
{_runs(found)}; accuracy in %, then the noise that the adversary faces in a round, in clipping norms. Batches of fixed
size need more noise for the same ε, because a replaced record counts twice in them. Lists of tokens need the most,
because three colluding parties know their own part of the batch; the lists also add {lists:,.0f} MB to the
{without:,.1f} MB that a party sends.

{markdown(head, [*rows, *noise])}"""


def network(result: dict[str, Any]) -> str:
    """Figure 2 with the paper's layers."""
    found = result["network"]
    head, rows = accuracy_rows(found)
    layers = " and ".join(str(units) for units in found["hidden"])
    return f"""## The paper's layers (Figure 2)

![Accuracy of a network with two hidden layers, with both samplings, against ε.](images/cross_silo_network.png)

As in the paper, convolutions were trained on public images and stay as they are, so that their outputs can be computed
once: they are the features here. Behind them are two hidden layers of {layers} units, which begin at random:
{found["weights"]:,} weights. {found["data"]}, {found["records"]:,} records, {found["rounds"]} rounds at the rate
{found["rate"]:g}, momentum 0.9, mean of {_runs(found)}; accuracy in %:

{markdown(head, rows)}"""


def larger(result: dict[str, Any]) -> str:
    """Figure 4 for larger networks, with the time of a round."""
    found = result["larger"]
    tables = []
    for network in found["networks"]:
        points = network["points"]
        head = ["k", *(f"{point['size']:,}" for point in points)]
        rows = [
            ["accuracy, %", *(f"{100 * point['mean']:.1f}" for point in points)],
            *(
                [f"round, {name}, s", *(f"{point['seconds'][name]:.2f}" for point in points)]
                for name in ("ideal", "compute-nodes")
            ),
        ]
        tables.append(f"{network['weights']:,} weights:\n\n{markdown(head, rows)}")
    shown = "\n\n".join(tables)
    return f"""## Projections of larger networks, with their time (Figure 4)

![Accuracy and time of a round against the length of projected gradients.](images/cross_silo_larger.png)

Networks of one hidden layer, {found["data"]}, {found["records"]:,} records, {found["rounds"]} rounds,
ε = {found["epsilon"]:g}, mean of {_runs(found)}; the last column has no projection. Time is everyone's
processor seconds in a round of 10 parties with two compute nodes, on networks of the same size.

{shown}"""


def pairs(result: dict[str, Any]) -> str:
    """Figure 5."""
    found = result["pairs"]
    rows = [[name, *(f"{fold:.1f}" for fold in folds)] for name, folds in found["folds"].items()]
    return f"""## Pairwise masks (Figure 5)

![Time of a round with pairwise masks over the ideal sum's against the number of parties.](images/cross_silo_pairs.png)

A round of {found["weights"]:,} weights, everyone's processor time over that of the ideal sum, the best of
{found["repeats"]}. With `pairwise` and `secagg` everyone masks with everyone, so work grows with the number of parties.
In the paper, groups of a fixed size keep the work constant (its horizontal lines): for any number of groups it is that
of one group of this size. Groups are not offered here, because each group's sum would be protected by its own members'
noise only. `secagg+` draws as many neighbours for each party as its proof needs: everyone when parties are few, and a
shrinking share of them as their number grows.

{markdown(["parties", *map(str, found["parties"])], rows)}"""


def _runs(found: dict[str, Any]) -> str:
    return "1 run" if found["runs"] == 1 else f"{found['runs']} runs"
