"""The shape of the package: imports point down, no room needs itself by way of another, and nothing grows too large.

All imports count, also those within functions and those under TYPE_CHECKING: what a reader must know to read a file is
what it names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import unspoken

ROOT = Path(unspoken.__file__).parent
TESTS = Path(__file__).parent
FLOORS: tuple[frozenset[str], ...] = tuple(
    map(
        frozenset,
        (
            # A room may import what is on the floors below it, and nothing of its own floor but itself.
            {"__main__", "flower"},
            {"cli"},
            {"demo", "__init__"},
            {"comparison", "estimators"},
            {"simulation", "sites", "templates"},
            {"report"},
            {"engines"},
            {"roles"},
            {"methods"},
            {"learners", "summation"},
            {"privacy", "data"},
            {"noise", "study"},
            {"arithmetic", "compiling", "plugins", "writing"},
            {"defaults", "errors", "interrupts", "types"},
        ),
    )
)

MOST_LINES_OF_A_FILE = 400
LONG_FILES: dict[str, str] = {}
MOST_LINES_OF_A_FUNCTION = 40
LONG_FUNCTIONS = {
    "cli/sites.py:serve": "typer reads its options from the signature",
    "cli/sites.py:join": "typer reads its options from the signature",
    "cli/simulate.py:simulate": "typer reads its options from the signature",
    "cli/compare.py:compare": "typer reads its options from the signature",
    "estimators.py:PrivateClassifier.__init__": "scikit-learn reads parameters from the signature",
    "simulation/arrays.py:simulate": "a front door",
    "comparison/arrays.py:compare": "a front door",
    "learners/nearest_neighbours.py:_vote": "one compiled loop",
}
MOST_PARAMETERS = 7
MANY_PARAMETERS = {
    "cli/sites.py:serve": "options of the command line",
    "cli/sites.py:join": "options of the command line",
    "cli/simulate.py:simulate": "options of the command line",
    "cli/compare.py:compare": "options of the command line",
    "cli/ledger.py:limit": "options of the command line",
    "roles/party.py:Party.__init__": "who a party is, what it keeps, and what tests inject",
    "cli/new.py:new": "options of the command line",
    "simulation/arrays.py:simulate": "a front door",
    "comparison/arrays.py:compare": "a front door",
    "simulation/computing.py:compute": "a front door",
    "cli/tune.py:tune": "options of the command line",
    "estimators.py:PrivateClassifier.__init__": "scikit-learn reads parameters from the signature",
    "estimators.py:PrivateRegressor.__init__": "scikit-learn reads parameters from the signature",
    "noise/discrete_gaussian.py:_add_draws": "compiled: it takes arrays and numbers, no objects",
    "learners/nearest_neighbours.py:_keep": "compiled: it takes arrays and numbers, no objects",
    "learners/sgd.py:descend": "compiled: it takes arrays and numbers, no objects",
}


class Import(NamedTuple):
    """One room needs another."""

    by: str
    room: str
    of: str


class Function(NamedTuple):
    name: str
    lines: int
    """Without decorators, and without the docstring."""
    parameters: int
    """Without self and cls."""


@cache
def trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}


def room_of(module: str) -> str:
    """The folder below the package that a module is in, or the module itself if it is in none.

    >>> room_of("unspoken.noise.stream"), room_of("unspoken.errors"), room_of("unspoken")
    ('noise', 'errors', '__init__')
    """
    return (*module.split("."), "__init__")[1]


def imports() -> Iterator[Import]:
    for file, tree in trees().items():
        room = file.split("/")[0].removesuffix(".py")
        for node in ast.walk(tree):
            for module in _imported(node):
                if module.split(".")[0] == "unspoken" and room_of(module) != room:
                    yield Import(f"{file}:{getattr(node, 'lineno', 0)}", room, room_of(module))


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"a relative import in line {node.lineno}"
        if node.module == "unspoken":
            names = [alias.name for alias in node.names]
            return [f"unspoken.{name}" if _is_room(name) else "unspoken" for name in names]
        return [node.module or ""]
    return []


def _is_room(name: str) -> bool:
    return (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()


def functions() -> Iterator[Function]:
    for file, tree in trees().items():
        yield from _functions(tree, f"{file}:")


def _functions(node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = child.args
            names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
            count = len([name for name in names if name not in ("self", "cls")])
            yield Function(prefix + child.name, _lines(child), count)
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or 0) - docstring.lineno + 1
    return lines


def test_every_room_has_its_floor() -> None:
    rooms = {file.split("/")[0].removesuffix(".py") for file in trees()}
    assert rooms == {room for floor in FLOORS for room in floor}
    assert sum(map(len, FLOORS)) == len(rooms)


def test_imports_point_down() -> None:
    """So there are no cycles between rooms, either."""
    height = {room: number for number, floor in enumerate(FLOORS) for room in floor}
    up = [f"{found.by} imports {found.of}" for found in imports() if height[found.of] <= height[found.room]]
    assert not up
    assert len(list(imports())) > 100


def test_what_methods_share_knows_none_of_them() -> None:
    """Plans and releases are below the methods: they import each other's room at most."""
    shared = ("methods/planning/", "methods/releases/")
    for file, tree in trees().items():
        if file.startswith(shared):
            found = {module for node in ast.walk(tree) for module in _imported(node)}
            methods = {module.removeprefix("unspoken.") for module in found if module.startswith("unspoken.methods")}
            assert all(f"{module.replace('.', '/')}/".startswith(shared) for module in methods), file


def test_no_method_computes_an_epsilon_of_its_own() -> None:
    """Plans ask for it, for whatever unit, and methods ask their plan."""
    names = (
        (file, f"{node.module}.{alias.name}")
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
    asking = {file for file, name in names if name.startswith("unspoken.privacy.accounting")}
    planning = {f"methods/planning/{name}.py" for name in ("making", "plan", "units")}
    assert {file for file in asking if file.startswith("methods/")} == planning


def test_no_file_is_too_long() -> None:
    files = {str(path.relative_to(ROOT)): path for path in ROOT.rglob("*.py")}
    files |= {f"tests/{path.relative_to(TESTS)}": path for path in TESTS.rglob("*.py")}
    lines = {file: len(path.read_text().splitlines()) for file, path in files.items()}
    assert {file for file, count in lines.items() if count > MOST_LINES_OF_A_FILE} == set(LONG_FILES)


def test_no_function_is_too_long() -> None:
    assert {found.name for found in functions() if found.lines > MOST_LINES_OF_A_FUNCTION} == set(LONG_FUNCTIONS)


def test_no_function_has_too_many_parameters() -> None:
    assert {found.name for found in functions() if found.parameters > MOST_PARAMETERS} == set(MANY_PARAMETERS)
