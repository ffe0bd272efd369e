"""Imports follow the tables in layers.md: nothing upward, nothing sideways, and no circles."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLES = Path(__file__).with_name("layers.md")
MOST_MODULES = 15
"""More modules in one folder cannot be taken in at a glance."""


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, as a dotted name, and the place of the import."""

    module: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


@dataclass(frozen=True, slots=True)
class Rules:
    """The tables: what each room may import, and where each edge library may be used.

    A room is ``folder/`` or ``file.py``.
    """

    rooms: Mapping[str, tuple[str, ...]]
    edges: Mapping[str, tuple[str, ...]]

    @property
    def packages(self) -> frozenset[str]:
        """The folders below the root that hold rooms."""
        return frozenset(room.split("/")[0] for room in self.rooms)

    def room_of(self, path: str) -> str | None:
        """The innermost room around a path such as ``driver/nvml/api.py``, with or without its ending."""
        parts = path.removesuffix(".py").split("/")
        for length in range(len(parts), 0, -1):
            inner = "/".join(parts[:length])
            for room in (f"{inner}.py", f"{inner}/"):
                if room in self.rooms:
                    return room
        return None

    def allows(self, room: str, other: str) -> bool:
        """Whether modules in one room may import modules in the other."""
        return room == other or any(holds(place, other) for place in self.rooms[room])


def table(text: str, heading: str) -> list[list[str]]:
    """The rows below the Markdown table head that begins with ``| heading |``, as cells."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(f"| {heading} |"))
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def quoted(cell: str) -> tuple[str, ...]:
    """The words in backticks."""
    return tuple(re.findall(r"`([^`]+)`", cell))


def holds(place: str, path: str) -> bool:
    """Whether a place of the table, a file or a folder with a slash at its end, holds a file or a room."""
    return path == place or (place.endswith("/") and path.startswith(place))


def read_rules(text: str) -> Rules:
    """The tables of layers.md."""
    return Rules(
        {quoted(row[0])[0]: quoted(row[2]) for row in table(text, "room")},
        {quoted(row[0])[0]: quoted(row[1]) for row in table(text, "edge library")},
    )


def imports_of(source: str, file: str) -> list[Import]:
    """Every module that a file imports, also inside functions and by name from a package."""
    package = file.removesuffix("__init__.py").removesuffix(".py").strip("/").split("/")
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, file, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found += [Import(f"{base}.{alias.name}", file, node.lineno) for alias in node.names]
        elif isinstance(node, ast.Call) and _called(node.func) in ("import_module", "__import__"):
            name = node.args[0] if node.args else None
            text = name.value if isinstance(name, ast.Constant) else "something computed"
            found.append(Import(str(text), file, node.lineno))
    return found


def _called(function: ast.expr) -> str:
    """The last name of what is called, empty where it has none."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


@cache
def imports_in(path: Path) -> list[Import]:
    """Every module that one of our modules imports; read once for all tests."""
    return imports_of(path.read_text(), path.relative_to(ROOT).as_posix())


def violations(rules: Rules, imported: Import) -> list[str]:
    """What is wrong with one import; empty when the tables allow it."""
    room = rules.room_of(imported.file)
    target = imported.module.split(".")[0]
    wrong = []
    if target in rules.packages:
        other = rules.room_of(imported.module.replace(".", "/"))
        if room is None or other is None:
            wrong.append(
                f"{imported}: the table has no room for {imported.file if other else imported.module}"
            )
        elif not rules.allows(room, other):
            wrong.append(f"{imported}: {room} may not import {other}")
    places = rules.edges.get(target)
    if places is not None and not any(holds(place, imported.file) for place in places):
        wrong.append(f"{imported}: {target} belongs into {', '.join(places)} only")
    return wrong


def product_files(rules: Rules) -> list[Path]:
    """All our modules but tests and generated stubs."""
    files = [path for package in sorted(rules.packages) for path in sorted((ROOT / package).rglob("*.py"))]
    return [path for path in files if not path.stem.endswith("_pb2")]


def product_imports(rules: Rules) -> Iterator[Import]:
    """Every import of our modules."""
    for path in product_files(rules):
        yield from imports_in(path)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """A circle of the graph, empty when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def inner_imports(folder: str, public: tuple[str, ...], path: Path) -> list[Import]:
    """The imports by which a file outside of a folder and of its tests reaches into it."""
    file, inside = path.relative_to(ROOT).as_posix(), folder.strip("/").replace("/", ".")
    # Most files do not name the folder, and parsing all of them takes seconds.
    if file.startswith((folder, f"tests/{folder}")) or inside not in path.read_text():
        return []
    modules = tuple(f"{one.removesuffix('.py').replace('/', '.')}." for one in public)
    return [
        one
        for one in imports_in(path)
        if one.module.startswith(f"{inside}.") and not one.module.startswith(modules)
    ]


@pytest.fixture(scope="module")
def rules() -> Rules:
    return read_rules(TABLES.read_text())


def test_every_import_is_allowed(rules: Rules) -> None:
    assert [sentence for one in product_imports(rules) for sentence in violations(rules, one)] == []


def test_nobody_reaches_into_a_folder(rules: Rules) -> None:
    files = [*product_files(rules), *sorted((ROOT / "tests").rglob("*.py"))]
    inner = [
        one
        for folder, public, *_ in table(TABLES.read_text(), "folder")
        for path in files
        for one in inner_imports(quoted(folder)[0], quoted(public), path)
    ]
    assert [str(one) for one in inner] == []


def test_every_module_stands_in_a_room(rules: Rules) -> None:
    files = [path.relative_to(ROOT).as_posix() for path in product_files(rules)]
    outside = [file for file in files if rules.room_of(file) is None]
    # What only holds rooms has nothing but a docstring.
    assert [file for file in outside if len(ast.parse((ROOT / file).read_text()).body) > 1] == []


def test_every_room_is_there_and_every_package_has_one(rules: Rules) -> None:
    assert [room for room in rules.rooms if not (ROOT / room).exists()] == []
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"} <= rules.packages


def test_no_rooms_lean_on_each_other(rules: Rules) -> None:
    graph = {
        room: {other for other in rules.rooms if other != room and rules.allows(room, other)}
        for room in rules.rooms
    }
    assert circle(graph) == []


def test_no_modules_import_each_other(rules: Rules) -> None:
    names = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path
        for path in product_files(rules)
    }
    graph: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for one in imports_in(path):
            graph[name] |= {one.module, one.module.rpartition(".")[0]} & names.keys() - {name}
    assert circle(graph) == []


@pytest.mark.parametrize("package", ["driver", "controller", "kubeletplugin", "gpuctl"])
def test_no_folder_holds_more_modules_than_can_be_seen(package: str) -> None:
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    sizes = {folder: sum(path.stem != "__init__" for path in folder.glob("*.py")) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MOST_MODULES} == {}


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("controller/publish/publisher.py", "from kubeletplugin.claims.journal.journal import Journal"),
        ("kubeletplugin/kubelet/wire/server.py", "def late():\n    import controller"),
        ("kubeletplugin/kubelet/wire/server.py", "from kubeletplugin.claims.journal.entry import Entry"),
        ("kubeletplugin/claims/journal/journal.py", "from kubeletplugin.settings import Settings"),
        ("kubeletplugin/claims/plan.py", "from kubeletplugin import wiring"),
        ("controller/plugin/watch.py", "from controller.publish import publisher"),
        ("driver/hardware/gpu.py", "from proto import dra_v1_pb2"),
        ("driver/hardware/gpu.py", "from driver.devices.device import Device"),
        ("driver/devices/names.py", "from fakegpu.machine.fake_machine import FakeMachine"),
        ("kubernetes_rules/quantity.py", "from driver.errors import DriverError"),
        ("proto/generate.py", "import driver.devices.names"),
        ("driver/kube/client.py", "from driver.slices.specs import lay_out"),
        ("driver/hardware/inventory.py", "import pynvml"),
        ("driver/nvml/realistic.py", "import pynvml"),
        ("driver/lonely.py", "from driver.errors import DriverError"),
        ("controller/publish/publisher.py", "from kubernetes.client import ApiClient"),
        ("driver/process/service.py", "import grpc"),
        ("driver/process/service.py", "from ..slices.specs import lay_out"),
        ("driver/policy/config.py", "import importlib\nimportlib.import_module('kubernetes')"),
    ],
)
def test_an_import_out_of_order_is_found(rules: Rules, file: str, source: str) -> None:
    found = [sentence for one in imports_of(source, file) for sentence in violations(rules, one)]
    assert len(found) == 1


def test_what_the_tables_allow_is_not_complained_about(rules: Rules) -> None:
    source = (
        "import grpc\nfrom driver.process.log import get_logger\nfrom proto import dra_v1_pb2\nimport json"
    )
    found = [violations(rules, one) for one in imports_of(source, "kubeletplugin/kubelet/dra_service.py")]
    assert found == [[], [], [], []]


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
