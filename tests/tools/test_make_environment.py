"""The environment of a checkout is made with words from the first moment, and a failing step is told."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A path with a space is no interpreter for the kernel, so a shell starts it.
PYTHON = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import pathlib, shutil, sys
words = sys.argv[1:]
log = pathlib.Path({log!r})
log.write_text((log.read_text() if log.exists() else "") + " ".join(words[1:]) + "\\n")
if words[1] == "venv":
    folder = pathlib.Path(words[-1], "bin")
    folder.mkdir(parents=True)
    shutil.copy(__file__, folder / "python")
elif "-r" in words:
    print("Collecting click==8.5.1 (from -r requirements.lock (line 1))")
    print("Downloading click-8.5.1-py3-none-any.whl (110 kB)")
    sys.exit({code})
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What the stand-in for Python was asked."""
    return tmp_path / "log"


def stand_in(tmp_path: Path, log: Path, code: int = 0) -> Path:
    """A Python that makes an environment of nothing, and a pip that says what pip says."""
    path = tmp_path / "python"
    path.write_text(PYTHON.format(python=sys.executable, log=str(log), code=code))
    path.chmod(0o755)
    return path


def command(tmp_path: Path, python: Path) -> list[str]:
    return [
        sys.executable,
        str(ROOT / "tools/make_environment.py"),
        str(tmp_path / "venv"),
        "--python",
        str(python),
    ]


def without_uv(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PATH": str(tmp_path)}


def make(tmp_path: Path, python: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(tmp_path, python),
        cwd=ROOT,
        env=without_uv(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_step_is_told_before_it_is_done(tmp_path: Path, log: Path) -> None:
    python = stand_in(tmp_path, log)

    done = make(tmp_path, python)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"making the environment in {tmp_path / 'venv'}; once, and it takes a minute or two",
        "  1 of 3: an empty environment",
        "  2 of 3: the libraries of requirements.lock, with pip",
        "  3 of 3: this project",
        "the environment is ready",
    ]
    first, second, third = log.read_text().splitlines()
    assert first.startswith("venv --clear")
    assert "--require-hashes -r requirements.lock" in second
    assert third.endswith("--no-deps --editable .")


def test_on_a_terminal_it_says_what_pip_does_at_this_moment(tmp_path: Path, log: Path) -> None:
    python = stand_in(tmp_path, log)
    main, ours = pty.openpty()
    subprocess.run(command(tmp_path, python), cwd=ROOT, env=without_uv(tmp_path), stdout=ours, check=True)
    os.close(ours)
    with os.fdopen(main, "rb", buffering=0) as terminal:
        shown = terminal.read(65536).decode()

    assert "\r\x1b[K  1: Collecting click==8.5.1" in shown
    assert "Downloading click-8.5.1-py3-none-any.whl" in shown


def test_a_step_that_fails_ends_it_with_what_pip_said(tmp_path: Path, log: Path) -> None:
    python = stand_in(tmp_path, log, code=7)

    done = make(tmp_path, python)

    assert done.returncode == 1
    assert "Downloading click-8.5.1-py3-none-any.whl" in done.stdout
    assert "failed with exit code 7" in done.stderr
    assert len(log.read_text().splitlines()) == 2


def test_an_environment_that_is_a_link_to_another_one_is_not_emptied(tmp_path: Path, log: Path) -> None:
    python = stand_in(tmp_path, log)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "venv").symlink_to(tmp_path / "theirs")

    done = make(tmp_path, python)

    assert done.returncode == 1
    assert "is a link to" in done.stderr
    assert not log.exists()
