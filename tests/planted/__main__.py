"""Plants each fault of faults.yaml in a copy of the code and says which tests notice it; 1 if none does."""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.near import stories_of

_ROOT = Path(__file__).resolve().parents[2]
_FAULTS = Path(__file__).with_name("faults.yaml")
_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "node_modules")

Fault = Mapping[str, Any]


def faults() -> list[Fault]:
    """What faults.yaml lists."""
    listed: list[Fault] = yaml.safe_load(_FAULTS.read_text())
    return listed


def planted(fault: Fault, root: Path = _ROOT) -> tuple[Path, str]:
    """The file of the fault, relative to ``root``, and its text with the fault.

    Raises ValueError unless the fault has exactly one place.
    """
    name, _, function = fault["at"].partition(" ")
    text = (root / name).read_text()
    start, end = _lines_of(text, function)
    lines = text.splitlines(keepends=True)
    body = "".join(lines[start:end])
    if body.count(fault["old"]) != 1:
        raise ValueError(f"{fault['name']}: {fault['at']} does not have {fault['old']!r} once")
    changed = body.replace(fault["old"], fault["new"])
    return Path(name), "".join((*lines[:start], changed, *lines[end:]))


def _lines_of(text: str, function: str) -> tuple[int, int]:
    """Where a function begins and ends; of several with the name, ``Class.name`` is one."""
    owner, _, name = function.rpartition(".")
    within: ast.AST = ast.parse(text)
    if owner:
        within = next(one for one in ast.walk(within) if isinstance(one, ast.ClassDef) and one.name == owner)
    found = [one for one in ast.walk(within) if isinstance(one, ast.FunctionDef) and one.name == name]
    if len(found) != 1:
        raise ValueError(f"{len(found)} functions are called {function}")
    return found[0].lineno - 1, found[0].end_lineno or 0


def noticed_by(fault: Fault, copy: Path) -> set[str]:
    """The functions that fail in ``copy``, a copy of the repository, while it has the fault."""
    path, text = planted(fault, copy)
    before = (copy / path).read_text()
    (copy / path).write_text(text)
    try:
        folders = fault.get("tests") or [str(Path("tests", path.parent))]
        return _failed([*folders, *map(str, stories_of(path))], copy)
    finally:
        (copy / path).write_text(before)


def _failed(folders: Sequence[str], copy: Path) -> set[str]:
    words = [sys.executable, "-m", "pytest", "-q", "-rfE", "--no-header", "--tb=no", "-n", "2", *folders]
    # What never comes is waited for: not as long as on a busy machine.
    environment = {**os.environ, "WAIT_SECONDS": "15"}
    ran = subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        raise RuntimeError(ran.stdout[-2000:] + ran.stderr[-2000:])
    lines = [line.split(" ") for line in ran.stdout.splitlines()]
    return {words[1].partition("[")[0] for words in lines if words[0] in ("FAILED", "ERROR")}


def main() -> int:
    """Print a row of a Markdown table for each fault; the words on the command line choose some by name."""
    chosen = [one for one in faults() if all(word in one["name"] for word in sys.argv[1:])]
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(_ROOT, copy, ignore=_NOT_COPIED)
        for fault in chosen:
            noticed = noticed_by(fault, copy)
            unnoticed += not noticed
            files = {one.partition("::")[0] for one in noticed}
            first = min(noticed, key=lambda one: (len(one), one), default="**nothing**")
            sys.stdout.write(f"| {fault['name']} | {len(noticed)} in {len(files)} | {first} |\n")
            sys.stdout.flush()
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
