"""Sections of docs/cape.md that the paper has no figure for, and the table from the paper to the code."""

from __future__ import annotations

import textwrap
from typing import Any

from benchmarks.cape.sweeps import PAPER
from benchmarks.common import markdown

_PLACES: tuple[tuple[str, str, str], ...] = (
    (
        "Definitions 1 to 3, equation (1)",
        "`privacy/gaussian.py`",
        "the exact δ(ε) of Gaussian noise. Equation (1) takes more noise than needed while ε is small, and keeps no "
        "promise for large ε: at ε = 10 and δ = 1e-5 its noise has δ = 2.3e-5",
    ),
    (
        "Section 3.1, conventional noise",
        "method `conv`",
        "the same; a baseline",
    ),
    (
        "Algorithm 1, zero-sum noise",
        "`methods/cape.py`, `ZeroSum` in `methods/base.py`",
        "any secure sum adds up the ê, of all turns at once. Its result is public, so a site sends f + ê + g and the "
        "aggregator takes Σê away: the same view, and exact in integers",
    ),
    (
        "Algorithm 2, CAPE",
        '`cape`, `order = "noise-first"`',
        "f is a sum over records, not a mean; whole numbers instead of reals (Remark 2)",
    ),
    (
        "after Proposition 1: sites that drop out do no harm",
        '`cape`, `order = "messages-first"`; “Sites that vanish” below',
        "true of sites that drop out before the ê are added up; the ê of one that vanishes later stays in the total. "
        "So, if sites may vanish, messages come first by default, then the sum of the ê of those who sent one. Proved "
        "in `privacy/correlated.py`",
    ),
    (
        "Theorem 1, Remark 1",
        "`privacy/correlated.py`",
        "corrected: it understates the loss (Figures 5 and 6); any number of colluding sites, and exact δ(ε)",
    ),
    (
        "Lemma 1: as much noise as pooled",
        "`over_curator` of `unspoken plan`",
        "true of the variances; at the same true promise H = S·[1/h + (1 − 1/h)/(κ + 1)] times as much for h honest "
        "sites: S/h by default. κ is `correlation`, S in the paper",
    ),
    (
        "Proposition 1: a gain G = S",
        "`gain` of `unspoken plan`",
        "at the same true promise G = 1/[1/h + (1 − 1/h)/(κ + 1)]: h by default, and less with the paper's κ (S = 5, "
        "h = 4: 2.67)",
    ),
    (
        "Remark 3: unequal sites, τ_s of their own, H(n)",
        "`epsilons` of `cape`; “Unequal sites” and “Sites with a promise of their own” below",
        "sites count by their records, so H(n) is the same for all n. A site may ask for a smaller ε and adds the "
        "noise for it; the total must then hide the strictest site, which no scheme avoids",
    ),
    (
        "Proposition 2, Section 3.4: any function",
        "`unspoken.compute`",
        "in several turns under one budget; k-means in `examples/kmeans.py`; histograms as a study. Proposition 2 "
        "asks for Δ(N/S) = S·Δ(N), as a mean has it. Here sites add up, and a sum has the same Δ for any N. Of a "
        "nomographic function ψ(Σφ), φ is for `compute`, and ψ afterwards costs nothing",
    ),
    (
        "Section 4.1, the functional mechanism; Δ of dp-fm in 4.3 and Appendix H",
        "method `dp-fm`",
        "with the published sensitivity and a tight one; without order 0, so 2(D² + 2D) in place of 2(D + 1)². Classes "
        "have the same coefficients, of centred indicators, so not Appendix H's D²/4 + 3D",
    ),
    (
        "Algorithm 3, Theorem 2, the improved mechanism",
        "`unspoken.functional_mechanism`, method `central`",
        "all orders are one Gaussian release: the paper spends ε once for each. Λ_0 does not move the minimiser and "
        "may be left out; of symmetric tensors each entry is released once. The sensitivity follows from the norms "
        "that coefficients are clipped to (2r for a norm r), whatever f is; with `function = …` it is the exact one of "
        "both orders together",
    ),
    (
        "Algorithm 4, capeFM; Section 4.3",
        '`cape` with `function = "linear-regression"`',
        "both orders in one release; `reshape`, and a repair of the noisy matrix (`published = true` is without both)",
    ),
    (
        "Section 4.5, other costs by polynomials",
        "`unspoken.functional_mechanism`",
        "coefficients of orders up to 8, clipped to stated norms; the noisy coefficients are released, with value, "
        "gradient and minimiser of their polynomial",
    ),
    (
        "Appendix H, logistic regression",
        '`function = "logistic-regression"`; the example of `functional_mechanism`',
        "any number of classes",
    ),
    (
        "Section 5.1, network",
        '`function = "network"`',
        "ε for all iterations together, not for each",
    ),
    (
        "Appendix A, Table 1: communication",
        "`unspoken plan`",
        "bytes that each party sends, for the protocol that the study names (“What a site sends” below)",
    ),
    (
        "Appendix C, fewer colluders",
        "Figure 6 below; `[privacy] colluding`",
        "exact for any number",
    ),
    (
        "Section 5.2, scaling by the largest values in the data",
        "`[data.columns]`, `norm`, `bounds`",
        "by public bounds only, so that scaling costs nothing; the paper says itself that its own is not private. The "
        "figures here scale as the paper does",
    ),
    (
        "Section 6, staircase noise and trees of sites",
        "—",
        "future work in the paper, and not here: all proofs rest on shares of Gaussian noise that add up to Gaussian "
        "noise, and messages go to one coordinator",
    ),
    (
        "Figures 2 to 7",
        "below",
        "one of the two real data sets (Twitter) was not to be had, and is replaced. The paper gives no numbers of its "
        "curves, so those of its published code are beside ours",
    ),
    (
        "Figure 1",
        "—",
        "a drawing of who talks to whom",
    ),
)


def places(result: dict[str, Any]) -> str:
    return f"""## From the paper to the code

{markdown(["in the paper", "here", "what is different, and why"], _PLACES)}"""


def ablation(result: dict[str, Any]) -> str:
    (sweep,) = result["ablation"]
    labels = [label for label in sweep["curves"] if label != "not private"]
    rows = [
        [f"{epsilon:g}", *(f"{sweep['curves'][label][place]['error']:.4f}" for label in labels)]
        for place, epsilon in enumerate(sweep["values"])
    ]
    return f"""## What our settings do

![Loss and error of capeFM, with the paper's settings and without each of ours, against ε.](images/cape_ablation.png)

"{PAPER}" (`published = true`) has the paper's correlation, no reshaping and the pseudo-inverse; but both orders in one
release and the true ε, as all others. `conv` has our settings. err_w on data of Figure 3:

{markdown(["ε", *labels], rows)}"""


def iterations(result: dict[str, Any]) -> str:
    found = result["iterations"]
    fixed = found["fixed"]
    told = (
        f"ε = {fixed['epsilon']:g} and δ = {fixed['delta']:g} for all iterations together, N = {fixed['records']:,}, "
        f"{found['runs']} runs. The more iterations, the more noise has each: what they gain without privacy, they may "
        f"lose with it. On test records CAPE is best with {_best(found, 'CAPE')} iterations, `conv` with "
        f"{_best(found, 'conv')}, without privacy {_best(found, 'not private')}."
    )
    return f"""## Iterations of the network

![Accuracy of the network against the number of iterations.](images/cape_iterations.png)

{textwrap.fill(told, 120)}"""


def _best(found: dict[str, Any], label: str) -> int:
    """The number of iterations with the fewest errors."""
    errors = [point["test"] for point in found["curves"][label]]
    return int(found["values"][errors.index(min(errors))])


def unequal(result: dict[str, Any]) -> str:
    found = result["unequal"]
    told = (
        f"{found['records']:,} records at 5 sites, of which one has more and more; D = {found['dimension']}, ε = 0.5. "
        "Here f is a sum over records, so the noise of the total does not depend on who has how many. In a mean of the "
        "sites' means, as in Remark 3, the noise of small sites counts most: its variance over that of equal sites is "
        "H(n)."
    )
    return f"""## Unequal sites

![Error of the coefficients, and H(n), against the share of the largest site.](images/cape_unequal.png)

{textwrap.fill(told, 120)}"""


def vanished(result: dict[str, Any]) -> str:
    five = result["vanished"][0]["curves"]
    told = (
        "In the paper's order the ê of a site that vanishes before its message stays in the total: with 5 sites of "
        f"which 2 may vanish, one that does leaves noise of {five['noise-first'][1]:.2f} times the sensitivity, more "
        f"than independent noise ({five['conv'][1]:.2f}). Messages first, the ê cancel whoever vanishes: "
        f"{five['messages-first'][1]:.2f}. It takes a secure sum after each turn's messages. Where a secure sum can be "
        "had then, `moments` has no more noise, and shows no messages. ε = 1, one colluder."
    )
    return f"""## Sites that vanish

![Noise in the total against the number of sites that vanish.](images/cape_vanished.png)

{textwrap.fill(told, 120)}"""


def strict(result: dict[str, Any]) -> str:
    found = result["strict"]
    sites, usual, own, noise = found["sites"], found["usual"], found["own"], found["noise"]
    told = (
        f"Remark 3 lets every site have a τ_s of its own. Of {sites} sites, one of them a colluder, some ask for ε = "
        f"{own:g} and the others for {usual:g}. One strict site adds the noise that it needs. Of two, one may collude "
        "and know its own noise, so that each would have to hide the total alone: then the others add as much, and the "
        f"total has the noise that it would have if all had asked for {own:g}. Sites that want the same count on each "
        "other."
    )
    head = [f"sites with ε = {own:g}", *map(str, range(sites + 1))]
    row = ["noise in the total, over the sensitivity", *(f"{each:.1f}" for each in noise)]
    return f"""## Sites with a promise of their own

{textwrap.fill(told, 120)}

{markdown(head, [row])}"""


def communication(result: dict[str, Any]) -> str:
    rows = result["communication"]
    names = list(rows[0]["bytes"])
    told = (
        "What one site sends for a mean of D numbers, in bytes, as `unspoken plan` tells it, with ⌈S/3⌉ − 1 colluders. "
        "As in the paper's Table 1 it is O(S + D) over SecAgg, for a sum of ê as for one of f. Heikkilä et al. send D "
        "numbers to each of M compute nodes; here all nodes but one get a seed of 32 bytes: O(D + M). CAPE takes the "
        "sum and a message: two vectors where a secure sum of f takes one."
    )
    table = [
        [str(row["sites"]), f"{row['dimension']:,}", *(f"{row['bytes'][name]:,}" for name in names)] for row in rows
    ]
    return f"""## What a site sends (Table 1)

{textwrap.fill(told, 120)}

{markdown(["S", "D", *names], table)}"""
