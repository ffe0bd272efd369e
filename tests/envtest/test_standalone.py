"""``envtest`` and ``kubernetes_rules`` stand alone: the test of the README passes with these two packages."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).with_name("standalone")
ALLOWED = {"envtest": {"envtest", "kubernetes_rules"}, "kubernetes_rules": {"kubernetes_rules"}}
OURS = {path.parent.name for path in ROOT.glob("*/__init__.py")}


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_no_module_imports_another_package_of_ours(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _imported(node)
        if name in OURS - ALLOWED[package]
    }
    assert found == set()


def _imported(node: ast.AST) -> set[str]:
    """The top-level packages that a statement imports."""
    if isinstance(node, ast.Import):
        return {one.name.partition(".")[0] for one in node.names}
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return {node.module.partition(".")[0]}
    return set()


def test_the_example_of_the_readme_passes_with_these_two_packages(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for package in OURS:
        if package in ALLOWED:
            (packages / package).symlink_to(ROOT / package)
        else:
            # A checkout that is installed would have them, too.
            (packages / f"{package}.py").write_text("raise ImportError('not here')")
    work = shutil.copytree(FILES, tmp_path / "work")
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "envtest" / "README.md").read_text(), re.DOTALL)
    (work / "test_my_driver.py").write_text(example)

    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(work)],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
