"""Makes the virtual environment of a checkout, and shows its progress, since that takes minutes.

Runs on the Python of the system, with the standard library alone, and says so if that Python is too old. It
uses uv if that is installed.
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
_WIDTH = 79
# The beginnings of pip's lines that are shown.
_SHOWN = ("Collecting ", "Downloading ", "Building wheel", "Installing collected packages")


class Progress:
    """Shows a line for each step, and on a terminal a line below it that is overwritten with the progress."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._collected = 0

    def step(self, text: str) -> None:
        """Show that a step begins, or that all are done."""
        # A carriage return and the control sequence that clears the line.
        self._write(f"\r\033[K{text}\n" if self._live else f"{text}\n")

    def show(self, line: str) -> None:
        """Show a line that pip or uv wrote, if it says something about the progress."""
        if line.startswith("Collecting "):
            self._collected += 1
        if self._live and line.startswith(_SHOWN):
            words = line.split(" (from ", maxsplit=1)[0]
            # The control characters in front take no room on the line.
            self._write(f"\r\033[K  {self._collected}: {words}"[: _WIDTH + 4])

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Make the environment; returns the exit code, 1 if a step failed."""
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
    if given.folder.is_symlink():
        # --clear would empty the folder that it leads to, which is another checkout's.
        print(
            f"{given.folder} is a link to {given.folder.readlink()}: remove the link, or make the"
            " environment there",
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
    """The steps with pip: words and command of each."""
    install = [str(folder / "bin" / "python"), "-m", "pip", "install"]
    install += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    return [
        ("an empty environment", [python, "-m", "venv", "--clear", str(folder)]),
        (f"the libraries of {LOCK}, with pip", [*install, "--require-hashes", "-r", LOCK]),
        ("this project", [*install, "--no-deps", "--editable", "."]),
    ]


def with_uv(uv: str, folder: Path, python: str) -> list[tuple[str, list[str]]]:
    """The steps with uv, which finds a Python that is new enough, or downloads one."""
    chosen = python if sys.version_info >= OLDEST else ".".join(map(str, OLDEST))
    install = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    return [
        ("an empty environment", [uv, "venv", "--quiet", "--clear", "--python", chosen, str(folder)]),
        (f"the libraries of {LOCK}, with uv", [*install, "--require-hashes", "-r", LOCK]),
        ("this project", [*install, "--no-deps", "--editable", "."]),
    ]


def run(command: list[str], progress: Progress) -> bool:
    """Run one step; returns whether it succeeded. If it failed, the end of its output is shown."""
    wrote = []
    # stderr is not captured, so errors are shown at once.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout or ():
            wrote.append(line)
            progress.show(line.strip())
    if process.returncode:
        progress.step("".join(wrote[-20:]).rstrip())
        print(f"`{' '.join(command)}` failed with exit code {process.returncode}", file=sys.stderr)
    return process.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
