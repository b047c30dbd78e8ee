"""Makes the scattering features of Fashion-MNIST that `public.accuracy --scattering` reads; needs kymatio and torch.

Wavelet scattering (J = 2, L = 8) of each image by itself, and then group norm over 27 groups of 3 channels, as Tramèr &
Boneh (2021) do: 3,969 numbers an image. 70,000 images take some minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special

from benchmarks import images
from benchmarks.common import say

_BATCH = 500
_CHANNELS, _GROUPS = 81, 27


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    images.add_fashion(parser)
    parser.add_argument("output", type=Path, metavar="FILE", help="the NPZ file to write")
    arguments = parser.parse_args()
    found = images.idx(arguments.fashion)
    pictures, labels = np.concatenate([found.train, found.test]), np.concatenate([found.labels, found.test_labels])
    np.savez(arguments.output, X=scattered(pictures), y=labels)


def scattered(pictures: Any) -> Any:
    """The features of (images, 28, 28) bytes, in half precision."""
    # Kymatio 0.3 imports a function that SciPy no longer has, and does not use it here.
    if not hasattr(scipy.special, "sph_harm"):
        scipy.special.sph_harm = None
    import torch
    from kymatio.torch import Scattering2D

    scattering, parts = Scattering2D(J=2, shape=(28, 28), L=8), []
    for start in range(0, len(pictures), _BATCH):
        batch = torch.from_numpy(pictures[start : start + _BATCH].astype(np.float32) / 255.0)
        found = scattering(batch).reshape(len(batch), _CHANNELS, 7, 7)
        parts.append(torch.nn.functional.group_norm(found, _GROUPS).reshape(len(batch), -1).numpy().astype(np.float16))
        if start % 10_000 == 0:
            say(f"{start:,} of {len(pictures):,} images")
    return np.concatenate(parts)


if __name__ == "__main__":
    main()
