"""``envtest`` and ``kubernetes_rules`` stand alone: the test of the README passes with these two packages."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).with_name("standalone")
NEEDED = ("envtest", "kubernetes_rules")
OURS = {path.parent.name for path in ROOT.glob("*/__init__.py")}


def test_the_example_of_the_readme_passes_with_these_two_packages(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for package in OURS:
        if package in NEEDED:
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
