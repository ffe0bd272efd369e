"""Names the tests that mirror what has changed since the last commit; ``make near`` runs them."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.parts import TAKE_LONG

ALWAYS = ("tests/test_layers.py", "tests/test_house_limits.py")
_ROOT = Path(__file__).resolve().parents[1]


def near(changed: Iterable[str], root: Path = _ROOT) -> tuple[str, ...]:
    """The files of tests for changed files; all paths are relative to ``root``, as git prints them.

    A module has the test of its name. Without one it has the tests of its mirrored folder that name it, or
    all of that folder. A helper of tests stands for its folder. Pages have only the tests that always run.
    """
    found = {test for path in changed for test in _mirrors(Path(path), root)}
    return (*ALWAYS, *sorted(str(test) for test in found))


def _mirrors(path: Path, root: Path) -> Iterator[Path]:
    yield from stories_of(path)
    if path.suffix != ".py":
        return
    of_tests = path.parts[0] == "tests"
    named = path if of_tests else Path("tests", path.parent, f"test_{path.name}")
    if named.name.startswith("test_") and (root / named).exists():
        yield named
        return
    if named.parent == Path("tests"):
        return
    beside = sorted((root / named.parent).glob("test_*.py"))
    module = ".".join(path.with_suffix("").parts)
    naming = [test for test in beside if module in test.read_text()]
    yield from (test.relative_to(root) for test in naming or beside)


def stories_of(path: Path) -> tuple[Path, ...]:
    """The tests that play what happens on a node, for a module of the plugin or one of their files."""
    is_played = path.parts[0] == "kubeletplugin" or path.suffix == ".transcript"
    return (Path("tests/kubeletplugin/test_transcripts.py"),) if is_played else ()


def changed_files(root: Path = _ROOT) -> list[str]:
    """What git calls changed since the last commit or new; deleted files too."""
    return [path for words in _ASKED for path in _git(words, root)]


_ASKED = (("diff", "--name-only", "HEAD"), ("ls-files", "--others", "--exclude-standard"))


def _git(words: tuple[str, ...], root: Path) -> list[str]:
    ran = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return ran.stdout.splitlines()


if __name__ == "__main__":
    sys.stdout.write(" ".join((*near(changed_files()), *(f"--deselect={long}" for long in TAKE_LONG))))
