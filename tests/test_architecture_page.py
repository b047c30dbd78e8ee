"""The page on the architecture names files and functions: all of them are there, and where it says. So are those that
CONTRIBUTING.md names."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from test_architecture import FLOORS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DRAWING = ROOT / "docs" / "images" / "architecture.svg"
NAME = re.compile(r"[A-Za-z]\w*(\.\w+)?")


@cache
def defined(path: Path) -> frozenset[str]:
    """The classes and functions of a module, methods as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return frozenset(found)


def named() -> list[tuple[str, str]]:
    """What the page has in code type: names, each with the path that stands before it in the same line or cell."""
    pairs = []
    for passage in re.split(r"\n\s*\n|\n(?=\s*(?:\d+\.|-) )|\|", PAGE):
        path = ""
        for word in re.findall(r"`([^`\n]+)`", passage):
            if word.endswith((".py", "/")):
                path = word
                pairs.append((path, ""))
            elif NAME.fullmatch(word):
                pairs.append((path, word))
    return pairs


@pytest.mark.parametrize(("path", "name"), sorted(set(named())))
def test_what_the_page_names_is_there(path: str, name: str) -> None:
    place = ROOT / "unspoken" / path.removeprefix("unspoken/")
    assert place.exists()
    if name:
        modules = [place] if place.is_file() else sorted(place.rglob("*.py"))
        assert any(name in defined(module) for module in modules)


def test_the_page_names_a_file_before_most_names() -> None:
    pairs = named()
    assert len(pairs) > 60
    assert {name for path, name in pairs if not path} <= {"Sum", "Vote"}


def test_what_contributing_names_is_there() -> None:
    text = re.sub(r"```.*?```", "", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    words = set(re.findall(r"`([^`\n]+)`", text))
    code = [path for folder in ("unspoken", "tests") for path in (ROOT / folder).rglob("*.py")]
    files = {word for word in words if re.fullmatch(r"[\w/]+\.py", word)}
    assert {
        file for file in files if not any(f"/{path.relative_to(ROOT)}".endswith(f"/{file}") for path in code)
    } == set()
    names = {word for word in words if re.fullmatch(r"_?[A-Z][\w.]*", word)}
    assert len(names) > 50
    known = {name for path in code for name in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    assert {name for name in names if not set(name.split(".")) <= known} == set()


def test_what_the_drawing_names_is_there() -> None:
    names = re.findall(r'class="code"[^>]*>([^<]+)<', DRAWING.read_text(encoding="utf-8"))
    assert len(names) >= 12
    everything = frozenset().union(*map(defined, (ROOT / "unspoken").rglob("*.py")))
    assert set(names) <= everything
    page = PAGE.replace("NoiseShares.added", "Mechanism.added")
    assert [name for name in names if f"`{name}`" not in page] == []


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def rooms() -> list[list[str]]:
    """The lines of the page's list of rooms, the highest first."""
    (listed,) = re.findall(r"(?:^    \S.*\n)+", PAGE.split("## Rooms")[1].split("## ")[0], flags=re.MULTILINE)
    return [re.split(r"\s{3,}", line.strip())[0].split() for line in listed.splitlines()]


def test_every_room_and_module_is_in_the_list() -> None:
    package = ROOT / "unspoken"
    everything = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(room for line in rooms() for room in line) == sorted(everything - {"__init__", "__main__"})


def test_the_list_has_the_floors_that_imports_are_checked_by() -> None:
    floors = [sorted(floor - {"__init__", "__main__"}) for floor in FLOORS]
    assert [sorted(line) for line in rooms()] == [floor for floor in floors if floor]
