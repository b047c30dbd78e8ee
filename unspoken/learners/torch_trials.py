"""Finds out, on made-up records, how a module will behave differently in private training than its author may
expect."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from unspoken.errors import first_line
from unspoken.learners.stateless import Stateless
from unspoken.learners.torch_modules import ModelError
from unspoken.types import Floats

Shaped: TypeAlias = Callable[[Floats], Tensor]
"""Makes rows into a module's inputs"""

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_REMEDY = "nn.GroupNorm and nn.LayerNorm look at one record only"


def notes(name: str, module: Stateless, shaped: Shaped, features: int, slow: bool) -> tuple[str, ...]:
    """Notes for the plan on a module; `slow`: its gradients are computed one by one."""
    found = [*_inert(name, module.module)]
    rows = shaped(np.random.default_rng(0).uniform(size=(3, features)))
    if _is_random(module, rows):
        found.append(
            f'model "{name}" draws random numbers when it is used (dropout as a function?): in training the same for '
            "all records of a round, so that none changes what another gets; and what was released would predict "
            "something else each time; let it do so in training mode only"
        )
    elif _mixes(module, rows):
        found.append(
            f'model "{name}" scores a record otherwise beside others, but learns from each record alone; {_REMEDY}'
        )
    if not (_dropping(module.module) or _is_random(module, rows)) and _is_random_in_training(module.module, rows):
        found.append(
            f'model "{name}" draws random numbers in training mode (dropout as a function?), which does nothing here: '
            "modules are in evaluation mode, and noise is there anyway"
        )
    if changed := _changed_buffers(module, rows):
        found.append(
            f'model "{name}" changes its buffer {changed!r} when it is used; every pass starts from the first buffers, '
            "and the model is released with these, so nothing is kept of it"
        )
    if slow:
        # PyTorch's own error text is left out, because everyone with this study must derive the same plan.
        found.append(
            f'the gradients of model "{name}" are computed one record at a time, which may take ten times as long or '
            "more: torch.func does not take it (recurrent layers, branches by numbers and changes of buffers are the "
            "usual reasons)"
        )
    return tuple(found)


def check_scores(
    name: str, module: Stateless, shaped: Shaped, sizes: tuple[int, int], shape: tuple[int, ...] = ()
) -> None:
    """Refuse a module that does not give scores for any number of records; `sizes` are features and outputs."""
    features, outputs = sizes
    for count, several in ((2, "two records"), (5, "five records"), (1, "one record")):
        try:
            with torch.no_grad():
                scores = module(shaped(np.zeros((count, features))))
        except (Exception, SystemExit) as error:
            if count == 1:
                # Training, which takes records alone, has more to say of it.
                return
            rows = f"records of shape {list(shape)}" if shape else f"rows of {features} features"
            at_once = ", five at once" if count == 5 else ""
            raise ModelError(name, f"cannot take {rows}{at_once} ({first_line(error)})") from None
        if not isinstance(scores, Tensor):
            raise ModelError(name, f"gives a {type(scores).__name__}, but should give a tensor of scores")
        if (found := tuple(scores.shape)) != (count, outputs):
            raise ModelError(name, f"gives an array of shape {found} for {several}, but should give {(count, outputs)}")
        if scores.dtype != torch.float32:
            raise ModelError(name, f"gives scores as {scores.dtype}, but should give them as torch.float32")


def remedy(module: nn.Module) -> str:
    """What to do about a module through which no gradient of a single record goes."""
    normed = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if not all(part.track_running_stats for part in normed):
        return f"it must take a record alone: {_REMEDY}"
    return "the loss of a single record must have a gradient in its weights"


def _inert(name: str, module: nn.Module) -> list[str]:
    """Layers that do nothing, as modules are in evaluation mode."""
    found, parts = [], list(module.modules())
    if dropped := _dropping(module):
        found.append(
            f'model "{name}" has dropout ({type(dropped[0]).__name__}), which does nothing here: modules are in '
            "evaluation mode, and noise is there anyway"
        )
    normed = [part for part in parts if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats]
    if normed:
        found.append(
            f'model "{name}" has {type(normed[0]).__name__}, whose running statistics stay as they were made: to learn '
            f"them would cost privacy, and without them it normalises nothing; {_REMEDY}"
        )
    return found


def _dropping(module: nn.Module) -> list[nn.Module]:
    """The layers with dropout."""
    parts = list(module.modules())
    dropped: list[nn.Module] = [part for part in parts if isinstance(part, _DROPOUTS) and part.p > 0]
    return [
        *dropped,
        *(part for part in parts if isinstance(part, nn.RNNBase | nn.MultiheadAttention) and part.dropout > 0),
    ]


def _is_random_in_training(module: nn.Module, rows: Tensor) -> bool:
    """Whether a copy of the module uses random numbers where the module itself, in evaluation mode, does not."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            before = torch.random.get_rng_state()
            copy.deepcopy(module).train()(rows)
            return not torch.equal(before, torch.random.get_rng_state())
    except Exception:
        return False


def _is_random(module: Stateless, rows: Tensor) -> bool:
    """Whether two passes over the same rows differ."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return not torch.equal(module(rows).nan_to_num(), module(rows).nan_to_num())
    except Exception:
        return False


def _mixes(module: Stateless, rows: Tensor) -> bool:
    """Whether a record's scores depend on the others of its batch."""
    try:
        with torch.no_grad():
            together, alone = module(rows), torch.cat([module(row[None]) for row in rows])
    except Exception:
        return False
    return not torch.allclose(together, alone, rtol=1e-3, atol=1e-4, equal_nan=True)


def _changed_buffers(module: Stateless, rows: Tensor) -> str | None:
    """The name of a buffer that a pass changes."""
    module.restore()
    before = {name: buffer.clone() for name, buffer in module.module.named_buffers()}
    try:
        with torch.no_grad():
            module(rows)
        after = dict(module.module.named_buffers())
    except Exception:
        return None
    finally:
        module.restore()
    for name, buffer in before.items():
        if name in after and not torch.equal(after[name], buffer):
            return name
    return None
