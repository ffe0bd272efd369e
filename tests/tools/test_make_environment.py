"""The environment of a checkout is made in two stages, with words from the first moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# A path with a space is no interpreter for the kernel, so a shell starts it.
PYTHON = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import pathlib, shutil, signal, os, sys
words = sys.argv[1:]
log = pathlib.Path({log!r})
log.write_text((log.read_text() if log.exists() else "") + " ".join(words[1:]) + "\\n")
if words[1] == "venv":
    folder = pathlib.Path(words[-1], "bin")
    folder.mkdir(parents=True)
    shutil.copy(__file__, folder / "python")
elif "-r" in words:
    print("Downloading click-8.5.1-py3-none-any.whl (110 kB)")
    {then}
"""


def make(folder: Path, *words: str, then: str = "") -> tuple[int, list[str], list[str]]:
    """Exit code and output, and what a stand-in for Python and pip was asked."""
    python, log = folder / "python", folder / "log"
    python.write_text(PYTHON.format(python=sys.executable, log=str(log), then=then))
    python.chmod(0o755)
    program = str(ROOT / "tools/make_environment.py")
    done = subprocess.run(
        [sys.executable, program, str(folder / "venv"), "--python", str(python), *words],
        cwd=ROOT,
        env={**os.environ, "PATH": str(folder)},  # there is no uv
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        # A shell that runs the tests in the background lets them ignore SIGINT, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    return done.returncode, done.stdout.splitlines(), log.read_text().splitlines() if log.exists() else []


def test_the_product_comes_first_and_what_tests_need_is_added_to_it(tmp_path: Path) -> None:
    code, said, asked = make(tmp_path)

    assert code == 0
    assert [line.split(": ")[-1] for line in said[1:4]] == [
        "an empty environment",
        "the libraries of deploy/image/requirements.lock",
        "this project",
    ]
    assert [line.split()[0] for line in asked] == ["venv", "pip", "pip"]
    assert "--require-hashes -r deploy/image/requirements.lock" in asked[1]
    assert asked[2].endswith("--no-deps --editable .")

    _, _, asked = make(tmp_path, "--development")

    assert len(asked) == 4
    assert "--require-hashes -r requirements.lock" in asked[3]


def test_a_step_that_fails_ends_it_with_what_pip_said(tmp_path: Path) -> None:
    code, said, asked = make(tmp_path, then="sys.exit(7)")

    assert (code, len(asked)) == (1, 2)
    assert {"Downloading click-8.5.1-py3-none-any.whl (110 kB)"} <= set(said)
    assert any("failed with exit code 7" in line for line in said)


def test_ctrl_c_is_no_traceback(tmp_path: Path) -> None:
    code, said, _ = make(tmp_path, then="os.kill(os.getppid(), signal.SIGINT)")

    assert (code, said[-1]) == (130, "stopped; run it again")


def test_an_environment_that_is_a_link_to_another_one_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "venv").symlink_to(tmp_path / "theirs")

    code, said, asked = make(tmp_path)

    assert (code, asked) == (1, [])
    assert "is a link to" in said[0]
