"""Makes the virtual environment of a checkout, and says what it does while that takes minutes.

Runs on the Python that is there, with its standard library alone, and says so where that is too old. uv is
used where it is installed.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
LOCK = "requirements.lock"
_WIDE = 79
_TOLD = ("Collecting ", "Downloading ", "Building wheel", "Installing collected packages")


class Progress:
    """Steps in lines of their own; on a terminal, where in a step it is, in a line that is written over."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._collected = 0

    def step(self, text: str) -> None:
        """A new step begins, or all are done."""
        self._write(f"\r\033[K{text}\n" if self._live else f"{text}\n")

    def hear(self, line: str) -> None:
        """A line that pip wrote."""
        if line.startswith("Collecting "):
            self._collected += 1
        if self._live and line.startswith(_TOLD):
            words = line.split(" (from ", maxsplit=1)[0]
            self._write(f"\r\033[K  {self._collected}: {words}"[: _WIDE + 4])

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Make the environment; returns the exit code, 1 where a step failed."""
    parser = argparse.ArgumentParser(description="Make the virtual environment of this checkout.")
    parser.add_argument("folder", type=Path, help="where it shall be")
    parser.add_argument("--python", default=sys.executable, help="the Python for it")
    given = parser.parse_args(arguments)
    uv = shutil.which("uv")
    if sys.version_info < OLDEST and uv is None:
        print(
            f"this needs Python {'.'.join(map(str, OLDEST))} or newer, and {given.python} is"
            f" {platform.python_version()}: name another one with `make PYTHON=python3.12`",
            file=sys.stderr,
        )
        return 1
    progress = Progress()
    progress.step(f"making the environment in {given.folder}; once, and it takes a minute or two")
    steps = with_uv(uv, given.folder, given.python) if uv else with_pip(given.folder, given.python)
    for number, (what, command) in enumerate(steps, 1):
        progress.step(f"  {number} of {len(steps)}: {what}")
        if not run(command, progress):
            return 1
    progress.step("the environment is ready")
    return 0


def with_pip(folder: Path, python: str) -> list[tuple[str, list[str]]]:
    """What pip has to do, step by step."""
    install = [str(folder / "bin" / "python"), "-m", "pip", "install"]
    install += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    return [
        ("an empty environment", [python, "-m", "venv", "--clear", str(folder)]),
        (f"the libraries of {LOCK}, with pip", [*install, "--require-hashes", "-r", LOCK]),
        ("this project", [*install, "--no-deps", "--editable", "."]),
    ]


def with_uv(uv: str, folder: Path, python: str) -> list[tuple[str, list[str]]]:
    """What uv has to do; it finds a Python that is new enough, or downloads one."""
    chosen = python if sys.version_info >= OLDEST else ".".join(map(str, OLDEST))
    install = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    return [
        ("an empty environment", [uv, "venv", "--quiet", "--clear", "--python", chosen, str(folder)]),
        (f"the libraries of {LOCK}, with uv", [*install, "--require-hashes", "-r", LOCK]),
        ("this project", [*install, "--no-deps", "--editable", "."]),
    ]


def run(command: list[str], progress: Progress) -> bool:
    """Run one step; whether it worked. What it wrote is shown where it did not, its errors at once."""
    wrote = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout or ():
            wrote.append(line)
            progress.hear(line.strip())
    if process.returncode:
        progress.step("".join(wrote[-20:]).rstrip())
        print(f"`{' '.join(command)}` failed with exit code {process.returncode}", file=sys.stderr)
    return process.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
