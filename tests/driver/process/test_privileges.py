"""What a process has given up it has lost in all of its threads and in what it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from envtest.client.shipped import PACKAGE_ROOT, python_environment
from tests import needs

SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
SYS_ADMIN = 1 << 21


def after(kept: str, then: str) -> list[str]:
    """What a process prints that keeps these capabilities and then does this."""
    code = f"""
import os, pathlib, subprocess, threading
from driver.process.privileges import keep_only
keep_only([{kept}])
def status(path="self"):
    return pathlib.Path(f"/proc/{{path}}/status").read_text()
{then}
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **python_environment(PACKAGE_ROOT)},
    )
    return done.stdout.splitlines()


def sets(lines: list[str]) -> dict[str, int]:
    """The capability sets of a /proc/PID/status."""
    fields = (line.split() for line in lines)
    return {field[0].rstrip(":"): int(field[1], 16) for field in fields if field[0].rstrip(":") in SETS}


@needs.DROPS
def test_all_sets_are_empty_and_nothing_is_gained_again() -> None:
    lines = after("", "print(status())")

    assert sets([line for line in lines if line]) == dict.fromkeys(SETS, 0)
    assert "NoNewPrivs:\t1" in lines


@needs.DROPS
def test_only_what_is_kept_is_left() -> None:
    lines = after("21", "print(status())")

    assert sets([line for line in lines if line]) == {
        "CapInh": 0, "CapPrm": SYS_ADMIN, "CapEff": SYS_ADMIN, "CapBnd": SYS_ADMIN, "CapAmb": 0,
    }  # fmt: skip


@needs.DROPS
def test_a_thread_and_a_program_have_no_more() -> None:
    then = """
thread = threading.Thread(target=lambda: print(status(f"self/task/{threading.get_native_id()}")))
thread.start()
thread.join()
print(subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True).stdout)
"""
    effective = [line for line in after("", then) if line.startswith(("CapEff", "CapPrm"))]

    assert [int(line.split()[1], 16) for line in effective] == [0] * 4


@needs.DROPS
def test_root_without_rights_opens_what_is_roots_and_nothing_of_others(tmp_path: Path) -> None:
    own, others = tmp_path / "own", tmp_path / "others"
    for path in (own, others):
        path.write_text("secret")
        path.chmod(0o600)
    os.chown(others, 12345, 12345)

    def opened(path: Path) -> list[str]:
        return after("", f"try: print(open({str(path)!r}).read())\nexcept PermissionError: print('refused')")

    assert opened(own) == ["secret"]
    assert opened(others) == ["refused"]


def test_rights_that_are_not_there_are_not_gained_and_giving_them_up_again_does_nothing() -> None:
    lines = after("", "keep_only([21])\nkeep_only([])\nprint(status())")

    found = sets([line for line in lines if line])
    assert (found["CapPrm"], found["CapEff"]) == (0, 0)
