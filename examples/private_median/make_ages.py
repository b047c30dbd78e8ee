"""Make up a table of patients: python make_ages.py ages.csv"""

import sys
from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
ages = np.minimum(rng.gamma(9.0, 6.0, 10_000), 110.0)
sexes = rng.choice(["f", "m"], len(ages))
rows = [f"{age:.1f},{sex}" for age, sex in zip(ages, sexes, strict=True)]
Path(sys.argv[1]).write_text("\n".join(["age,sex", *rows]) + "\n")
