"""Version 0.1 beside this one: a process of its own imports the package from a checkout of that version.

Studies and records go to it as files, and it answers with predictions of the released model for test records. It knows
nothing of this package: it is run as a program, with the checkout on its path.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np


class Before:
    """A running process of version 0.1."""

    def __init__(self, folder: Path) -> None:
        self._folder = tempfile.TemporaryDirectory()
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        self._process = subprocess.Popen(  # noqa: S603 (our own program)
            [sys.executable, __file__, str(folder)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def predictions(self, sections: dict[str, Any], train: Any, labels: Any, groups: Any, test: Any) -> Any:
        """What a model predicts that version 0.1 learns from these records."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("Expected a process with pipes.")
        file = Path(self._folder.name) / "records.npz"
        np.savez(file, train=train, labels=labels, groups=groups, test=test)
        print(json.dumps([sections, str(file)]), file=self._process.stdin, flush=True)
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("version 0.1 has ended; what it says is above.")
        return np.array(json.loads(line))


def add_before(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="a checkout of version 0.1, to measure it too")


def main() -> None:
    import unspoken

    if not Path(unspoken.__file__).is_relative_to(Path(sys.argv[1]).resolve()):
        raise SystemExit(f"{sys.argv[1]} has no package unspoken; name a checkout of version 0.1.")
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        sections, file = json.loads(line)
        with np.load(file, allow_pickle=False) as arrays:
            done = unspoken.simulate(sections, arrays["train"], arrays["labels"], arrays["groups"])
            print(json.dumps(np.asarray(done.model.predict(arrays["test"])).tolist()), flush=True)


if __name__ == "__main__":
    main()
