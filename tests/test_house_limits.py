"""A module is one idea: not too long, not too short, named by its job, and it says what that job is."""

import ast
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (*sorted(path.parent.name for path in ROOT.glob("*/__init__.py")), "tests")

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80
MOST_IMPORT_LINES = 0.103
"""Of the lines of code outside the tests: more says that ideas are cut up."""
MIN_LINES_BESIDE_ITS_IMPORTER = 60
"""A shorter module is merged into the only module that imports it, if both are in one folder."""
APART: dict[str, str] = {}
"""Short modules that stay apart from their single importer, each with the reason."""
MOST_TESTS = {("driver", "controller", "kubeletplugin"): 1.0}
"""The lines of tests for each line of the code in these folders together; ``MOST_OTHER_TESTS`` elsewhere."""
MOST_OTHER_TESTS = 0.6
NOT_COUNTED = ("contract", "crash", "faults", "machine", "no_over_commit", "sequences", "sweep")
"""Words in the names of tests that try whole worlds: state machines, sweeps of crashes, contracts."""
DOORS = ("tests/gpus.py", "tests/plugin.py", "tests/clusters.py")
"""Tests import from these what many of them need, so that a module that moves changes them alone."""
WITHOUT_DOORS = ("tests/toy_kind/", "tests/guest/inside/", "tests/envtest/standalone/", "tests/conftest.py")
"""A kind and a driver as others write them; what an emulated machine imports; what each test waits for."""
NAMES_THAT_SAY_NOTHING = frozenset(
    {"util", "utils", "helper", "helpers", "common", "manager", "managers", "base", "misc", "shared", "core"}
)


def modules() -> list[Path]:
    """All Python files of ours but the generated stubs."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in files if not path.stem.endswith("_pb2")]


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured properties of a module."""

    lines: int
    code_lines: int
    import_lines: int
    long_functions: list[str]
    says_its_job: bool


@cache
def measured() -> dict[str, Measured]:
    """All modules by their paths from the root; each is parsed once for all tests."""
    found = {}
    for path in modules():
        lines, tree = path.read_text().splitlines(), parsed(path)
        nodes = statements(tree)
        found[path.relative_to(ROOT).as_posix()] = Measured(
            len(lines),
            len(code_lines(lines, nodes)),
            len(lines_of(nodes, ast.Import, ast.ImportFrom)),
            long_functions(nodes),
            bool(ast.get_docstring(tree)),
        )
    return found


def statements(tree: ast.Module) -> list[ast.AST]:
    """The module and all statements in it; a walk through expressions would take ten times as long."""
    found: list[ast.AST] = [tree]
    for node in found:
        for inner in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, inner, ())
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a module."""
    return ast.parse(path.read_text())


def code_lines(lines: list[str], nodes: list[ast.AST]) -> set[int]:
    """The numbers of the lines that are not blank, a comment or a docstring."""
    numbered = enumerate(map(str.strip, lines), 1)
    written = {number for number, line in numbered if line and not line.startswith("#")}
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in nodes:
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            written -= lines_between(node.body[0])
    return written


def lines_of(nodes: list[ast.AST], *kinds: type[ast.stmt]) -> set[int]:
    """The numbers of the lines of statements of these kinds."""
    return {number for node in nodes if isinstance(node, kinds) for number in lines_between(node)}


def lines_between(node: ast.stmt) -> set[int]:
    """The numbers of a statement's lines."""
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def long_functions(nodes: list[ast.AST]) -> list[str]:
    """The functions with more lines than allowed, decorators and docstrings included."""
    return [
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]


@cache
def importers() -> dict[str, set[str]]:
    """For each module outside the tests, the modules outside the tests that import it."""
    paths = [path for path in modules() if path.relative_to(ROOT).parts[0] != "tests"]
    names = {module_name(path): path.relative_to(ROOT).as_posix() for path in paths}
    found: dict[str, set[str]] = {file: set() for file in names.values()}
    for path in paths:
        file = path.relative_to(ROOT).as_posix()
        for imported in imported_names(parsed(path)) & names.keys():
            found[names[imported]].add(file)
    return found


def module_name(path: Path) -> str:
    """The dotted name of a module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_names(tree: ast.Module) -> set[str]:
    """Dotted names that a module imports, and those that would be modules if the package has them."""
    found = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def says_nothing(path: Path) -> bool:
    """Whether a word of the path below the root says nothing about the job."""
    words = {word for part in path.with_suffix("").parts for word in part.split("_")}
    return not words.isdisjoint(NAMES_THAT_SAY_NOTHING)


def test_the_modules_are_found() -> None:
    assert Path(__file__) in modules()


def test_no_file_is_too_long() -> None:
    assert {name: one.lines for name, one in measured().items() if one.lines > MAX_FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    assert {name: one.long_functions for name, one in measured().items() if one.long_functions} == {}


def test_no_short_module_lies_beside_its_single_importer() -> None:
    short = {
        file: (by,)
        for file, (by, *more) in ((file, by) for file, by in importers().items() if by)
        if not more
        and measured()[file].lines < MIN_LINES_BESIDE_ITS_IMPORTER
        and Path(file).parent == Path(by).parent
        and Path(file).name not in ("__init__.py", "__main__.py")
    }
    assert sorted(short.keys() - APART.keys()) == []
    assert sorted(APART.keys() - short.keys()) == [], "these need no exception any more"


def test_few_lines_are_imports() -> None:
    ours = [one for file, one in measured().items() if not file.startswith("tests/")]
    assert sum(one.import_lines for one in ours) <= MOST_IMPORT_LINES * sum(one.code_lines for one in ours)


def test_tests_are_no_longer_than_what_they_test() -> None:
    code, tests = Counter[str](), Counter[str]()
    for file, one in measured().items():
        first, second, *_ = (*Path(file).parts, "")
        if first != "tests":
            code[first] += one.code_lines
        elif not any(word in Path(file).stem for word in NOT_COUNTED):
            tests[second] += one.code_lines
    together = {folder for folders in MOST_TESTS for folder in folders}
    limits = MOST_TESTS | {(name,): MOST_OTHER_TESTS for name in code.keys() - together - {"proto"}}
    assert {
        folders: round(share, 2)
        for folders, most in limits.items()
        if (share := sum(tests[one] for one in folders) / sum(code[one] for one in folders)) > most
    } == {}


def test_what_a_door_has_is_imported_through_it() -> None:
    opened = {pair for door in DOORS for pair in imported_pairs(ROOT / door)}
    assert {
        file: passed_by
        for path in modules()
        if (file := path.relative_to(ROOT).as_posix()).startswith("tests/")
        and not file.startswith((*DOORS, *WITHOUT_DOORS))
        and (passed_by := imported_pairs(path) & opened)
    } == {}


def imported_pairs(path: Path) -> set[tuple[str, str]]:
    """The modules and names that a file imports under the same name."""
    found = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom))
    return {(node.module or "", one.name) for node in found for one in node.names if one.asname is None}


def test_comments_docstrings_and_blank_lines_are_not_code() -> None:
    body = '    """Work.\n\n    Hard.\n    """\n    return os\n'
    source = f'"""Says its job."""\n\nimport os\n\n# why\ndef work():\n{body}'
    nodes = statements(ast.parse(source))
    assert code_lines(source.splitlines(), nodes) == {3, 6, 11}
    assert lines_of(nodes, ast.Import) == {3}


def test_no_module_is_named_after_nothing() -> None:
    assert [path for path in modules() if says_nothing(path.relative_to(ROOT))] == []


def test_every_module_says_its_job() -> None:
    assert [name for name, one in measured().items() if not one.says_its_job] == []


@pytest.mark.parametrize(("lines", "found"), [(MAX_FUNCTION_LINES, []), (MAX_FUNCTION_LINES + 1, ["work"])])
def test_a_function_is_measured_to_its_last_line(lines: int, found: list[str]) -> None:
    body = "".join(f"    x = {number}\n" for number in range(lines - 1))
    assert long_functions(statements(ast.parse(f"def work():\n{body}"))) == found


def test_a_folder_that_says_nothing_is_found() -> None:
    assert says_nothing(Path("driver/common/sysfs.py"))
    assert says_nothing(Path("driver/pci_utils.py"))
    assert not says_nothing(Path("driver/database.py"))
