"""Files are written completely or not at all, and overwrite nothing."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import unspoken
from unspoken import demo, writing
from unspoken.cli import app
from unspoken.cli.compare import _check_files
from unspoken.errors import UnspokenError
from unspoken.report import results
from unspoken.simulation import Simulation

FEATURES = np.random.default_rng(0).normal(size=(60, 3))
STUDY = {
    "study": {"name": "heart", "task": "classification"},
    "data": {"features": 3, "classes": 2},
    "parties": {"count": 10, "records": 4},
    "privacy": {"epsilon": 5.0, "delta": 1e-5},
    "method": {"name": "helmet"},
    "summation": {"protocol": "ideal"},
}


@pytest.fixture(scope="module")
def run() -> Simulation:
    return unspoken.simulate(STUDY, FEATURES, (FEATURES[:, 0] > 0).astype(int), np.arange(60) % 10)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The operating system takes no file that is larger, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def listening(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(place))


def names(folder: Path) -> list[str]:
    """All files and folders, the hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_every_run_has_files_of_its_own(run: Simulation, tmp_path: Path) -> None:
    first = run.save(tmp_path)
    before = {path: Path(path).read_bytes() for path in first.values()}
    second, third = run.save(tmp_path), run.save(str(tmp_path))
    assert [Path(files["model"]).name for files in (first, second, third)] == [
        "heart.model.skops",
        "heart-2.model.skops",
        "heart-3.model.skops",
    ]
    assert Path(second["certificate"]).name == "heart-2.certificate.json"
    assert {path: Path(path).read_bytes() for path in before} == before
    assert len(names(tmp_path)) == 6


def test_a_run_is_shown_in_one_line(run: Simulation) -> None:
    assert repr(run) == "Simulation('heart', method='helmet', survivors=10)"


def test_files_of_one_run_have_the_same_number(run: Simulation, tmp_path: Path) -> None:
    """If only the certificate's name is taken, the model does not stay alone under its own."""
    (tmp_path / "heart.certificate.json").write_text("mine")
    assert Path(run.save(tmp_path)["model"]).name == "heart-2.model.skops"
    assert (tmp_path / "heart.certificate.json").read_text() == "mine"
    assert names(tmp_path) == ["heart-2.certificate.json", "heart-2.model.skops", "heart.certificate.json"]


@pytest.mark.parametrize("size", [0, 1000, 3500])
def test_a_full_disk_leaves_nothing_behind(run: Simulation, tmp_path: Path, size: int) -> None:
    assert len(Path(run.save(tmp_path / "whole")["certificate"]).read_bytes()) > 3500
    with files_of_at_most(size), pytest.raises(UnspokenError, match=r"new/deep: cannot be written to \(File too large"):
        run.save(tmp_path / "new" / "deep")
    assert names(tmp_path) == ["whole", "whole/heart.certificate.json", "whole/heart.model.skops"]


def test_whether_a_folder_takes_a_file_is_tried_before_the_work(tmp_path: Path) -> None:
    writing.check_folder(tmp_path / "new" / "deep")
    with files_of_at_most(0), pytest.raises(UnspokenError, match=r"deep: cannot be written to .* another --output"):
        writing.check_folder(tmp_path / "new" / "deep")
    assert names(tmp_path) == []


def test_an_interrupt_leaves_nothing_behind(run: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(file: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.save(tmp_path)
    assert names(tmp_path) == []


def test_of_two_files_none_stays_if_the_second_fails(
    run: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = writing._link

    def full(file: Path, target: Path) -> None:
        if target.name.endswith("certificate.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        link(file, target)

    monkeypatch.setattr(writing, "_link", full)
    with pytest.raises(UnspokenError, match="No space left on device"):
        run.save(tmp_path)
    assert names(tmp_path) == []


def test_without_links_a_name_is_still_taken_once(
    run: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(file: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    assert Path(run.save(tmp_path)["model"]).name == "heart.model.skops"
    assert Path(run.save(tmp_path)["model"]).name == "heart-2.model.skops"
    assert len(names(tmp_path)) == 4


def test_a_file_is_replaced_whole_and_only_if_told_to(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    writing.write(path, "one")
    with pytest.raises(UnspokenError, match=r"study\.toml: exists already; choose another name, or overwrite it with"):
        writing.write(path, "two")
    with files_of_at_most(2), pytest.raises(UnspokenError, match=r"study\.toml: cannot be written to"):
        writing.write(path, "two", replace=True)
    assert path.read_text() == "one"
    writing.write(path, "two", replace=True)
    assert (path.read_text(), names(tmp_path)) == ("two", ["study.toml"])
    with pytest.raises(UnspokenError, match="is a folder; choose another name"):
        writing.check_free(tmp_path)


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize(("kind", "make"), [("a pipe", os.mkfifo), ("a socket", listening), ("a folder", os.mkdir)])
def test_what_is_no_file_is_never_replaced(
    tmp_path: Path, kind: str, make: Callable[[Path], object], is_linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    place = Path("there")
    make(place)
    if is_linked:
        Path("link").symlink_to(place)
        place = Path("link")
    before = place.stat()
    for replace in (True, False):
        with pytest.raises(UnspokenError, match=rf"^{place}: is {kind}; choose another name\.$"):
            writing.write(place, "two", replace=replace)
    Path("made").write_text("two")
    with pytest.raises(UnspokenError, match=f"is {kind}"):
        writing.keep({Path("made"): place}, replace=True)
    assert (place.stat().st_ino, place.stat().st_mode) == (before.st_ino, before.st_mode)
    said = CliRunner().invoke(app, ["new", str(place), "--force"])
    assert (said.exit_code, said.stderr) == (2, f"unspoken: {place}: is {kind}; choose another name.\n")


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "far" / "study.toml", tmp_path / "study.toml"
    target.parent.mkdir()
    link.symlink_to(target)
    for content in ("one", "two"):  # the link leads nowhere, then to a file
        writing.write(link, content, replace=True)
        assert (link.is_symlink(), target.read_text()) == (True, content)
    with pytest.raises(UnspokenError, match=r"study\.toml: exists already"):
        writing.write(link, "three")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(UnspokenError, match=r"round: cannot be written to \(Too many levels of symbolic links"):
        writing.write(tmp_path / "round", "four", replace=True)
    assert names(tmp_path) == ["far", "far/study.toml", "round", "study.toml"]


def test_a_result_without_a_certificate_is_not_written(run: Simulation, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="JSON"):
        results.write(run.file, run.plan.study.name, {"odd": object()}, tmp_path / "out")
    assert names(tmp_path) == []


def test_the_demo_keeps_what_is_there(tmp_path: Path) -> None:
    assert not demo.write_files(tmp_path)
    assert names(tmp_path) == ["study.toml", "test.npz", "train.npz"]
    study = tmp_path / "study.toml"
    edited = study.read_text().replace("epsilon = 2.0", "epsilon = 3.0")
    study.write_text(edited)
    (tmp_path / "test.npz").unlink()
    assert demo.write_files(tmp_path)
    assert (study.read_text(), len(names(tmp_path))) == (edited, 3)
    study.write_text(edited.replace("features = 64", "features = 63"))
    with pytest.raises(UnspokenError, match="is no longer a study of the demo's digits"):
        demo.run(tmp_path)


@pytest.mark.parametrize("size", [0, 100_000])
def test_a_demo_on_a_full_disk_leaves_nothing_behind(tmp_path: Path, size: int) -> None:
    with files_of_at_most(size), pytest.raises(UnspokenError, match="choose another --output"):
        demo.write_files(tmp_path / "here")
    assert names(tmp_path) == []


def test_a_comparison_refuses_a_pipe_before_its_runs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "runs.csv")
    with pytest.raises(UnspokenError, match=r"runs\.csv: is a pipe; choose another name\."):
        _check_files(None, tmp_path / "runs.csv", force=True)
