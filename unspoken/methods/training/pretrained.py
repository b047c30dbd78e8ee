"""First weights from a file: layers that were trained on public records elsewhere."""

from __future__ import annotations

import zipfile
import zlib

import numpy as np

from unspoken.methods.releases.weights import DESCRIPTION
from unspoken.methods.training.options import TrainingOptions
from unspoken.study import Study, file_beside, sha256_of


def first_weights(study: Study, options: TrainingOptions) -> dict[str, np.ndarray] | None:
    """The arrays of the NPZ file that the study names, by name; None if it names none. No code in it is run."""
    if options.weights is None:
        return None
    path = file_beside(study, options.weights, "method.weights")
    found = sha256_of(path, study, "method.weights")
    if options.weights_sha256 not in (None, found):
        raise study.error(
            "method.weights_sha256",
            f'is "{options.weights_sha256}", but {path} has the SHA-256 {found}; use the file that the study means',
        )
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files if name != DESCRIPTION}
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise study.error(
            "method.weights",
            f'is "{options.weights}", which is no NPZ file of plain arrays ({error}); save one with numpy.savez(file, '
            "**{name: tensor.numpy() for name, tensor in module.state_dict().items()})",
        ) from None


def notes(study: Study, options: TrainingOptions) -> tuple[str, ...]:
    """A note for the plan that identifies the file."""
    if options.weights is None:
        return ()
    found = sha256_of(file_beside(study, options.weights, "method.weights"), study, "method.weights")
    advice = "" if options.weights_sha256 else "; as weights_sha256 in [method], it makes sure that all use this file"
    return (f"the file of first weights has the SHA-256 {found}{advice}; it should come from public records only",)
