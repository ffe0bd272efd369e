"""What a process has given up it has lost in all of its threads and in what it runs."""

import os
import subprocess
import sys
from pathlib import Path

from tests import needs
from tests.clusters import PACKAGE_ROOT, python_environment

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
def test_a_process_its_threads_and_its_programs_have_nothing_left_not_even_as_root(tmp_path: Path) -> None:
    own, others = tmp_path / "own", tmp_path / "others"
    for path in (own, others):
        path.write_text("secret")
        path.chmod(0o600)
    os.chown(others, 12345, 12345)
    then = f"""
print(status())
print("opened", open({str(own)!r}).read())
try:
    open({str(others)!r})
except PermissionError:
    print("refused")
thread = threading.Thread(target=lambda: print(status(f"self/task/{{threading.get_native_id()}}")))
thread.start()
thread.join()
print(subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True).stdout)
"""
    lines = [line for line in after("", then) if line]

    assert sets(lines[: lines.index("opened secret")]) == dict.fromkeys(SETS, 0)
    assert "NoNewPrivs:\t1" in lines
    assert "refused" in lines
    assert [int(line.split()[1], 16) for line in lines if line.startswith(("CapEff", "CapPrm"))] == [0] * 6


@needs.DROPS
def test_only_what_is_kept_is_left() -> None:
    lines = after("21", "print(status())")

    assert sets([line for line in lines if line]) == {
        "CapInh": 0, "CapPrm": SYS_ADMIN, "CapEff": SYS_ADMIN, "CapBnd": SYS_ADMIN, "CapAmb": 0,
    }  # fmt: skip


def test_rights_that_are_not_there_are_not_gained_and_giving_them_up_again_does_nothing() -> None:
    lines = after("", "keep_only([21])\nkeep_only([])\nprint(status())")

    found = sets([line for line in lines if line])
    assert (found["CapPrm"], found["CapEff"]) == (0, 0)
