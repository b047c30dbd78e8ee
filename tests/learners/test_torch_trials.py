"""Modules that will not work, or not as their authors think, are told in a sentence before anything runs."""

from __future__ import annotations

import re
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import unspoken
from factories import make
from unspoken.errors import UnspokenError
from unspoken.learners import torch_models, torch_modules
from unspoken.learners.torch_losses import LossFunction
from unspoken.learners.torch_models import TorchModel
from unspoken.learners.torch_modules import ModelError, Recipe
from unspoken.methods.registry import plan_for
from unspoken.study import StudyError

HERE = "found_among_trials"
FEATURES, OUTPUTS = 6, 3


class Recurrent(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.cells, self.last = nn.GRU(1, 4, batch_first=True), nn.Linear(4, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.last(self.cells(rows[:, :, None])[0][:, -1])
        return scores


class LongMemory(Recurrent):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self.cells = nn.LSTM(1, 4, num_layers=2, dropout=0.2, batch_first=True)


class Precise(nn.Linear):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs, dtype=torch.float64)

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows.double())


class Coarse(nn.Linear):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs, dtype=torch.bfloat16)


class Scored64(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows).double()


class Lazy(nn.Sequential):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(nn.LazyLinear(outputs))


class Normed(nn.Sequential):
    tracks = True

    def __init__(self, features: int, outputs: int) -> None:
        norm = nn.BatchNorm1d(features, track_running_stats=self.tracks)
        super().__init__(norm, nn.Linear(features, outputs))


class NormedByBatch(Normed):
    tracks = False


class Channels(nn.Module):
    """Normalised by what is in the batch, without running statistics."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(1, track_running_stats=False), nn.Linear(features, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.last(self.norm(rows[:, None])[:, 0])
        return scores


class Dropped(nn.Sequential):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(nn.Dropout(0.5), nn.Linear(features, outputs))


class DroppedAlways(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(rows, 0.5))


class DroppedInTraining(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(rows, 0.5, self.training))


class Branching(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        scores = super().forward(rows)
        return scores if rows.sum() > 0 else 2.0 * scores


class Counting(nn.Linear):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, rows: Tensor) -> Tensor:
        self.seen += 1.0
        return super().forward(rows)


class Cut(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows).detach()


class Silent(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows) * 0.0


class Pair(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        return (super().forward(rows), rows)  # type: ignore[return-value]


class Broken(nn.Linear):
    def __init__(self, features: int, outputs: int) -> None:
        raise KeyError("size")


class Pictures(nn.Sequential):
    """Takes images as images."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, outputs))


def doubled(scores: Tensor, targets: Tensor) -> Tensor:
    return 2.0 * nn.functional.cross_entropy(scores, targets, reduction="none")


class Leaving(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        sys.exit(3)


class Gone(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        sys.exit(4)


def averaged(scores: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(scores, targets)


def squeezed(scores: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(scores, targets, reduction="none").squeeze()


def endless(scores: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(scores, targets, reduction="none") / 0.0


def mixing(scores: Tensor, targets: Tensor) -> Tensor:
    """A loss that counts an example against the mean of all."""
    losses = nn.functional.cross_entropy(scores, targets, reduction="none")
    return losses * (1.0 + (scores - scores.mean(dim=0)).sum(dim=1))


def crowded(scores: Tensor, targets: Tensor) -> Tensor:
    """The same, where there are more examples than a trial has."""
    losses = nn.functional.cross_entropy(scores, targets, reduction="none")
    return losses if len(scores) <= 3 else mixing(scores, targets)


def robust(scores: Tensor, targets: Tensor) -> Tensor:
    """One of torch's own losses, which take one precision only."""
    return nn.functional.huber_loss(scores[:, 0], targets, reduction="none")


class OnACard(Tensor):
    """Numbers on a device that has no double precision, as graphics cards of Macs."""

    def double(self) -> Tensor:  # type: ignore[override]
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    def cpu(self) -> Tensor:  # type: ignore[override]
        return self.as_subclass(Tensor)


sys.modules[HERE] = sys.modules[__name__]


def model(kind: type[nn.Module] | str, loss: str = "cross-entropy", recipe: Recipe = torch_modules.PLAIN) -> TorchModel:
    name = kind if isinstance(kind, str) else f"{HERE}:{kind.__name__}"
    return TorchModel(name, FEATURES, OUTPUTS, loss, (), 0, recipe)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Precise, r"keeps 'weight' as float64, but is trained in float32; end its constructor with self\.float\(\)"),
        (Coarse, "keeps 'weight' as bfloat16"),
        (Scored64, "gives scores as torch.float64"),
        (Lazy, "has a lazy layer, whose '0.weight' has no size yet"),
        (NormedByBatch, "cannot be trained here .Expected more than 1 value per channel"),
        (NormedByBatch, r"it must take a record alone: nn\.GroupNorm and nn\.LayerNorm look at one record only"),
        (Cut, "cannot be trained here"),
        (Cut, "the loss of a single record must have a gradient in its weights"),
        (Silent, "has gradients of zero, or none that are finite numbers"),
        (Pair, "gives a tuple, but should give a tensor of scores"),
        (Broken, r"cannot be called with \(6, 3\), features and outputs \(KeyError 'size'\)"),
        (Leaving, r"cannot be called with \(6, 3\), features and outputs \(SystemExit 3\)"),
        (Gone, r"cannot take rows of 6 features \(SystemExit 4\)"),
    ],
)
def test_a_module_that_cannot_be_trained_is_refused(kind: type[nn.Module], problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        model(kind)


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        (Recurrent, "computed one record at a time"),
        (Branching, "computed one record at a time"),
        (LongMemory, r"has dropout \(LSTM\), which does nothing here"),
        (Dropped, r"has dropout \(Dropout\), which does nothing here"),
        (DroppedInTraining, r"draws random numbers in training mode .*, which does nothing here"),
        (DroppedAlways, "draws random numbers when it is used"),
        (Normed, "has BatchNorm1d, whose running statistics stay as they were made"),
        (Channels, "scores a record otherwise beside others"),
        (Counting, "changes its buffer 'seen' when it is used"),
    ],
)
def test_the_plan_says_what_a_module_does_otherwise_than_its_author_may_think(kind: type[nn.Module], note: str) -> None:
    """And a run goes through all the same."""
    agreed = make(
        "cross-silo",
        data={"features": FEATURES, "classes": OUTPUTS},
        parties={"count": 2, "records": 4, "max_records": 4},
        method={"model": f"{HERE}:{kind.__name__}", "rounds": 1, "rate": 1.0},
        summation="ideal",
        noise_multiplier=1.0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = " ".join(plan_for(agreed).notes)
        features, labels = np.random.default_rng(0).normal(size=(8, FEATURES)), np.arange(8) % OUTPUTS
        done = unspoken.simulate(agreed, features, labels, np.arange(8) % 2, X_test=features, y_test=labels)
    assert re.search(note, told), told
    assert set(done.metrics) == {"accuracy", "balanced_accuracy"}


def test_ordinary_modules_cause_no_note() -> None:
    assert model("linear").notes == model("mlp").notes == ()


def test_a_record_may_have_a_shape() -> None:
    shaped = TorchModel(f"{HERE}:Pictures", 9, OUTPUTS, "cross-entropy", (), 0, Recipe(shape=(1, 3, 3)))
    rows = np.random.default_rng(0).normal(size=(5, 9))
    whole = shaped.module(shaped.initial())(torch.from_numpy(rows).float().view(-1, 1, 3, 3)).numpy()
    np.testing.assert_allclose(shaped.scores(shaped.initial(), rows), whole, rtol=1e-5)
    found = shaped.clipped_gradients(shaped.initial(), rows, np.zeros(5, dtype=int), np.array([5]), 0.1)
    assert 0.0 < np.linalg.norm(found) <= 0.5
    with pytest.raises(ModelError, match=r"records of shape \[2, 2\], but they have 6 numbers"):
        model("linear", recipe=Recipe(shape=(2, 2)))
    with pytest.raises(ModelError, match=r"have 6 numbers; the last is the constant 1, if intercept is true: set it"):
        model("linear", recipe=Recipe(shape=(1, FEATURES - 1)))
    with pytest.raises(ModelError, match=r"cannot take records of shape \[2, 3\]"):
        model(Pictures, recipe=Recipe(shape=(2, 3)))


def test_given_weights_come_first_and_frozen_layers_stay() -> None:
    first = {"0.weight": np.full((64, FEATURES), 0.5), "0.bias": np.zeros(64)}
    made = model("mlp", recipe=Recipe(first=first, frozen=("0",)))
    assert made.size == 64 * OUTPUTS + OUTPUTS
    assert made.layers is not None
    state = made.state(np.zeros(made.size))
    np.testing.assert_array_equal(state["0.weight"], 0.5)
    np.testing.assert_array_equal(state["2.weight"], 0.0)
    with pytest.raises(ModelError, match=r"has no weights '1\.weight', which the file of first weights has"):
        model("mlp", recipe=Recipe(first={"1.weight": np.zeros(1)}))
    with pytest.raises(ModelError, match=r"has '0.bias' of shape \(64,\), where the file of first weights has \(3,\)"):
        model("mlp", recipe=Recipe(first={"0.bias": np.zeros(3)}))
    with pytest.raises(ModelError, match='has no layer "head" to freeze; it has: 0, 2'):
        model("mlp", recipe=Recipe(frozen=("head",)))


class Tied(nn.Sequential):
    """The first and the last layer have one matrix."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(nn.Linear(features, features), nn.Linear(features, features), nn.Linear(features, outputs))
        self[1].weight = self[0].weight


def test_weights_of_several_layers_are_frozen_by_the_name_of_any() -> None:
    assert model(Tied).size == FEATURES**2 + 2 * FEATURES + (FEATURES + 1) * OUTPUTS
    for frozen in ("0", "1"):
        made = model(Tied, recipe=Recipe(frozen=(frozen,)))
        assert made.size == FEATURES + (FEATURES + 1) * OUTPUTS


def gradients(made: TorchModel, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return made.clipped_gradients(made.initial(), rows, labels, np.ones(len(rows), dtype=int), 1e9)


def test_weights_of_classes_multiply_their_records_gradients() -> None:
    rows, labels = np.random.default_rng(0).normal(size=(3, FEATURES)), np.array([0, 1, 2])
    plain, factors = gradients(model("linear"), rows, labels), np.array([[1.0], [2.0], [0.5]])
    recipe = Recipe(class_weights=(1.0, 2.0, 0.5))
    np.testing.assert_allclose(gradients(model("linear", recipe=recipe), rows, labels), plain * factors, rtol=1e-5)
    # The same by torch.func.
    own = gradients(model("linear", f"{HERE}:doubled", recipe), rows, labels)
    np.testing.assert_allclose(own, 2.0 * plain * factors, rtol=1e-5)


def test_a_loss_of_one_s_own_is_computed_of_one_record_at_a_time() -> None:
    rows, labels = np.random.default_rng(0).normal(size=(3, FEATURES)), np.array([0, 1, 2])
    own = gradients(model("linear", f"{HERE}:doubled"), rows, labels)
    np.testing.assert_allclose(own, 2.0 * gradients(model("linear"), rows, labels), rtol=1e-5)
    mixed = model("linear", f"{HERE}:mixing")
    assert mixed.layers is None
    alone = np.concatenate([gradients(mixed, rows[each : each + 1], labels[each : each + 1]) for each in range(3)])
    np.testing.assert_allclose(gradients(mixed, rows, labels), alone, rtol=1e-5)
    assert "the loss keeps nothing of an example" in mixed.assumptions
    rows, labels = np.random.default_rng(1).normal(size=(8, FEATURES)), np.arange(8) % OUTPUTS
    found = gradients(model("linear", f"{HERE}:crowded"), rows, labels)
    np.testing.assert_allclose(found, gradients(model("linear"), rows, labels), rtol=1e-5)


def test_torch_s_own_losses_serve_a_regression() -> None:
    made = TorchModel("linear", FEATURES, 1, f"{HERE}:robust", (), 0)
    rows, labels = np.random.default_rng(0).normal(size=(3, FEATURES)), np.array([0.0, 0.25, 1.0])
    slopes = np.clip(made.scores(made.initial(), rows)[:, 0] - labels, -1.0, 1.0)[:, None]
    np.testing.assert_allclose(gradients(made, rows, labels), slopes * np.column_stack([rows, np.ones(3)]), rtol=1e-4)


def test_gradients_are_clipped_and_added_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    made, rows, labels = model("linear", f"{HERE}:doubled"), np.eye(3, FEATURES), np.array([0, 1, 2])
    expected = gradients(made, rows, labels)
    there = torch_models.gradients_at_once
    monkeypatch.setattr(torch_models, "gradients_at_once", lambda *given: there(*given).as_subclass(OnACard))
    np.testing.assert_array_equal(gradients(made, rows, labels), expected)


@pytest.mark.parametrize(
    ("loss", "problem"),
    [
        ("nowhere:loss", "cannot be imported here"),
        ("nowhere:loss", "install its package, or name its folder in PYTHONPATH"),
        (f"{HERE}:FEATURES", "is a int, but should be a function"),
        (f"{HERE}:averaged", r"gives a tensor of shape \(\) for 2 examples, but should give one loss an example"),
        (f"{HERE}:make", r"cannot be computed \("),
        (f"{HERE}:squeezed", r"gives a tensor of shape \(\) for 1 example, but should give one loss an example"),
    ],
)
def test_a_loss_that_cannot_be_used_is_told_in_a_sentence(loss: str, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        LossFunction(loss).check(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(StudyError, match=r"\[method\] loss is "):
        plan_for(make("cross-silo", method={"loss": loss}, summation="ideal"))


def test_a_loss_without_numbers_is_told_as_the_loss_and_not_as_the_ready_module() -> None:
    with pytest.raises(StudyError, match=rf'\[method\] loss is "{HERE}:endless", which has gradients of zero, or none'):
        plan_for(make("cross-silo", method={"loss": f"{HERE}:endless"}, summation="ideal"))


def test_passes_go_to_the_device_that_this_machine_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(torch_modules.DEVICE, "cpu:0")
    made = model("linear")
    assert made._device == torch.device("cpu:0")
    rows, labels = np.random.default_rng(0).normal(size=(3, FEATURES)), np.array([0, 1, 2])
    there = gradients(made, rows, labels)
    monkeypatch.delenv(torch_modules.DEVICE)
    np.testing.assert_array_equal(there, gradients(model("linear"), rows, labels))
    for name in ("cuda:9", "moon"):
        monkeypatch.setenv(torch_modules.DEVICE, name)
        with pytest.raises(UnspokenError, match=f'UNSPOKEN_DEVICE is "{name}", on which PyTorch cannot compute here'):
            model("linear")
