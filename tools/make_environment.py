"""Makes the virtual environment of a checkout, and shows its progress, since that takes a minute.

First come the libraries that the product needs, with ``--development`` those that its tests and checks need.
It runs on the Python of the system, with the standard library alone, and says so if that Python is too old.
It uses uv if that is installed.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
PRODUCT_LOCK, DEVELOPMENT_LOCK = "deploy/image/requirements.lock", "requirements.lock"
_WIDTH = 79
_STOPPED = 130
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
    parser.add_argument("--development", action="store_true", help="add what tests need to the environment")
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
    what = "adding what tests need to" if given.development else "making"
    progress.step(f"{what} the environment in {given.folder}; once, and it takes a minute")
    steps = steps_of(given.folder, given.python, uv, development=given.development)
    try:
        for number, (what, command) in enumerate(steps, 1):
            progress.step(f"  {number} of {len(steps)}: {what}")
            if not run(command, progress):
                return 1
    except KeyboardInterrupt:
        progress.step("stopped; run it again")
        return _STOPPED
    progress.step("the environment is ready")
    return 0


def steps_of(folder: Path, python: str, uv: str | None, *, development: bool) -> list[tuple[str, list[str]]]:
    """Words and command of each step. uv finds a Python that is new enough, or downloads one."""
    inside = str(folder / "bin" / "python")
    if uv:
        chosen = python if sys.version_info >= OLDEST else ".".join(map(str, OLDEST))
        empty = [uv, "venv", "--quiet", "--clear", "--python", chosen, str(folder)]
        install = [uv, "pip", "install", "--quiet", "--python", inside]
    else:
        empty = [python, "-m", "venv", "--clear", str(folder)]
        install = [inside, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        install += ["--progress-bar", "off"]
    lock = DEVELOPMENT_LOCK if development else PRODUCT_LOCK
    libraries = (f"the libraries of {lock}", [*install, "--require-hashes", "-r", lock])
    if development:
        return [libraries]
    project = ("this project", [*install, "--no-deps", "--editable", "."])
    return [("an empty environment", empty), libraries, project]


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
