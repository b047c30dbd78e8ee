"""The picture docs/images/secure_sum.png, from the kept numbers."""

from __future__ import annotations

from pathlib import Path

from benchmarks.common import Numbers, make_plots, pyplot, save
from benchmarks.secure_sum.growth import RESULTS


def main() -> None:
    make_plots(__doc__, RESULTS, draw_all)


def draw_all(result: Numbers, folder: Path) -> None:
    by_parties, by_length = result["by_parties"], result["by_length"]
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, rows, key in ((left, by_parties, "parties"), (right, by_length, "length")):
        for name, marker in (("client", "o"), ("server", "s")):
            axis.loglog([row[key] for row in rows], [row[name] for row in rows], marker=marker, label=name)
        axis.set_ylabel("processor seconds")
        axis.grid(True, which="both", alpha=0.25)
        axis.legend()
    for row in by_parties:
        where = (row["parties"], row["client"])
        left.annotate(
            f"k = {row['neighbours']}",
            where,
            textcoords="offset points",
            xytext=(0, 7),
            ha="center",
            annotation_clip=True,
        )
    left.margins(x=0.12)
    left.set(xlabel="parties n (half corrupt, 5 % dropouts)", title="vectors of 10,000 numbers")
    right.set(xlabel="numbers in a vector", title=f"{by_length[0]['parties']} parties")
    figure.suptitle("SecAgg+: the client's time hardly grows with n, the server's about linearly")
    save(figure, folder / "secure_sum.png")


if __name__ == "__main__":
    main()
