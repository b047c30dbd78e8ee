"""Lists all benchmarks: how to run each, how long it takes, and what it claims."""

from __future__ import annotations

import ast
from pathlib import Path

TIMES = {
    "cape.runs": "30 min",
    "cape.speed": "1 min",
    "cross_silo.runs": "60 min",
    "cross_silo.speed": "2 min",
    "helmet.accuracy": "5 min",
    "helmet.convergence": "1 min",
    "helmet.features": "30 min",
    "helmet.local_training": "5 min",
    "helmet.million": "3 min",
    "helmet.runs": "50 min",
    "moments.accuracy": "10 min",
    "moments.noise": "2 min",
    "network.speed": "5 min",
    "public.accuracy": "90 min",
    "public.scattering": "4 min",
    "scale.engines": "60 min",
    "secure_sum.growth": "2 min",
    "secure_sum.speed": "2 min",
    "secure_sum.store": "1 min",
    "voting.runs": "45 min",
    "voting.speed": "2 min",
}
"""How long each takes on two idle cores; with --quick a minute or less."""
FROM_NUMBERS = (
    "cape.page",
    "cross_silo.page",
    "helmet.page",
    "helmet.plots",
    "moments.page",
    "public.page",
    "scale.table",
    "secure_sum.plots",
    "voting.page",
)
"""What makes pages and pictures from the committed numbers, in seconds."""


def first_line(module: str) -> str:
    """The first line of a module's docstring; nothing is imported."""
    file = Path(__file__).parent / f"{module.replace('.', '/')}.py"
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").splitlines()[0]


def main() -> None:
    print("Each runs as `python -m benchmarks.NAME`, has --help, --json, and --quick for a small setting.\n")
    for module, minutes in TIMES.items():
        print(f"{module:22} {minutes:>7}  {first_line(module).removeprefix('Claim: ')}")
    print("\nFrom the numbers that are committed, in seconds:\n")
    for module in FROM_NUMBERS:
        print(f"{module:22} {'':>7}  {first_line(module)}")


if __name__ == "__main__":
    main()
