"""Imports follow the tables in docs/architecture.md: nothing upward, nothing sideways."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LATE_IMPORTS = frozenset({"importlib.import_module", "import_module", "__import__"})
ARCHITECTURE = ROOT / "docs" / "architecture.md"


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, as a dotted name, and where it stands."""

    module: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the tables allow: by folder, by edge library, and the driver's tiers from the ground up."""

    rooms: dict[str, frozenset[str]]
    edges: dict[str, tuple[str, ...]]
    tiers: dict[str, int]


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
    """What stands in backticks, without a slash at the end of folders."""
    return tuple(re.findall(r"`([^`]+)`", cell))


def read_rules(text: str) -> Rules:
    """The three tables of the architecture page."""
    rooms = {quoted(row[0])[0].rstrip("/"): frozenset(quoted(row[2])) for row in table(text, "folder")}
    edges = {quoted(row[0])[0]: quoted(row[1]) for row in table(text, "edge library")}
    tiers = {name: tier for tier, row in enumerate(table(text, "tier")) for name in quoted(row[1])}
    return Rules(rooms, edges, tiers)


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
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "importlib.import_module",
            "__import__",
        ):
            name = node.args[0] if node.args else None
            text = name.value if isinstance(name, ast.Constant) else "something computed"
            found.append(Import(str(text), file, node.lineno))
    return found


def violations(rules: Rules, imported: Import) -> list[str]:
    """What is wrong with one import; nothing when the tables allow it."""
    room = imported.file.split("/")[0]
    target = imported.module.split(".")[0]
    wrong = []
    if target in rules.rooms and target != room and target not in rules.rooms[room]:
        wrong.append(f"{imported}: {room}/ may not import {target}")
    places = rules.edges.get(target)
    if places is not None and not any(holds(place, imported.file) for place in places):
        wrong.append(f"{imported}: {target} belongs into {', '.join(places)} only")
    if room == target == "driver":
        mine, theirs = tier_of(rules, imported.file), tier_of(rules, imported.module.replace(".", "/"))
        if mine is not None and theirs is not None and theirs > mine:
            wrong.append(f"{imported}: it stands in a higher tier of driver/")
    return wrong


def holds(place: str, file: str) -> bool:
    """Whether a place of the table, a file or a folder with a slash at its end, holds the file."""
    return file == place or (place.endswith("/") and file.startswith(place))


def tier_of(rules: Rules, path: str) -> int | None:
    """The tier of a module of driver/; None for the package itself."""
    parts = path.removesuffix(".py").split("/")
    return rules.tiers.get(parts[1]) if len(parts) > 1 else None


def product_files(rules: Rules) -> list[Path]:
    """All our modules but tests and generated stubs."""
    files = [path for room in rules.rooms for path in sorted((ROOT / room).rglob("*.py"))]
    return [path for path in files if not path.stem.endswith("_pb2")]


@pytest.fixture(scope="module")
def rules() -> Rules:
    return read_rules(ARCHITECTURE.read_text())


def test_every_import_is_allowed(rules: Rules) -> None:
    wrong = [
        sentence
        for path in product_files(rules)
        for imported in imports_of(path.read_text(), path.relative_to(ROOT).as_posix())
        for sentence in violations(rules, imported)
    ]
    assert wrong == []


def test_every_module_of_the_driver_has_a_tier(rules: Rules) -> None:
    modules = {path.relative_to(ROOT / "driver").parts[0] for path in (ROOT / "driver").rglob("*.py")}
    names = {module.removesuffix(".py") for module in modules} - {"__init__"}
    assert names <= rules.tiers.keys(), "write it into the tiers of docs/architecture.md"


def test_every_package_stands_in_the_table(rules: Rules) -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert packages <= rules.rooms.keys()


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("controller/publish/publisher.py", "from kubeletplugin.journal.journal import Journal"),
        ("kubeletplugin/wire/server.py", "def late():\n    import controller"),
        ("driver/hardware/gpu.py", "from proto import dra_v1_pb2"),
        ("proto/generate.py", "import driver.devices.names"),
        ("driver/devices/names.py", "from driver import service"),
        ("driver/kube/client.py", "from driver.slices.specs import plan"),
        ("driver/hardware/inventory.py", "import pynvml"),
        ("driver/nvml/realistic.py", "import pynvml"),
        ("controller/publish/publisher.py", "from kubernetes.client import ApiClient"),
        ("driver/process/service.py", "import grpc"),
        ("driver/process/service.py", "from .slices import plan"),
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
    assert [violations(rules, one) for one in imports_of(source, "kubeletplugin/wire/server.py")] == [
        [],
        [],
        [],
        [],
    ]
