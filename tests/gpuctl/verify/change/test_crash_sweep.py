"""A verification that is killed at any step leaves a machine that `gpuctl verify --restore` brings back."""

import json
import operator
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.clusters import Object
from tests.eventually import eventually
from tests.examples import is_long
from tests.gpuctl.demo.test_demo import processes_of
from tests.gpuctl.verify.change.verifying import PLACES
from tests.gpuctl.verify.subjects import machine_in, places_of

PROJECT = Path(__file__).resolve().parents[4]
MIG = "mig-1g.12gb"
STEPS = (
    *("start the driver", f"{MIG}: prepare claim 2", f"{MIG}: unprepare", "mps: start a second probe"),
    *("passthrough: unprepare", "bring GPU"),
)
"""Steps after which different things are left."""

OTHER_STEPS = (
    f"{MIG}: prepare claim 1",
    f"{MIG}: start the probe",
    f"{MIG}: start a second probe",
    f"{MIG}: end the probes",
    f"{MIG}: compare",
    "time-slicing: start the probe",
    "mps: unprepare",
    "memory-limits: start a second probe",
    "passthrough: look at the kernel driver",
)
"""Steps that the long variant of the tests has as well."""


class Machine:
    """A fake machine in a folder that is also the TMPDIR of the processes that change it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._node, self._temporary = folder / "node", folder / "t"
        self._node.mkdir()
        self._temporary.mkdir()
        places = places_of(self._node, machine_in(self._node, name))
        (self._node / PLACES).write_text(
            json.dumps({key: str(value) for key, value in asdict(places).items()})
        )

    def start(self, *kinds: str) -> subprocess.Popen[str]:
        """Start to verify these kinds, or to restore without any."""
        words = (sys.executable, "-P", "-m", "tests.gpuctl.verify.change.verifying", str(self._node), *kinds)
        variables = {**os.environ, "PYTHONPATH": str(PROJECT), "TMPDIR": str(self._temporary)}
        return subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True)

    def kill_at(self, step: str, *kinds: str, by: signal.Signals = signal.SIGKILL) -> bool:
        """Start, and end the process by a signal once it says this step; whether it came so far."""
        with self.start(*kinds) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(step):
                    process.send_signal(by)
                    process.communicate(timeout=60)
                    return True
        return False

    def restored(self) -> str:
        """Restore the machine; returns what that printed."""
        with self.start() as process:
            said, _ = process.communicate(timeout=60)
        return said if process.returncode == 0 else f"failed: {said}"

    def state(self) -> Object:
        """The state of the machine, without numbers that a driver gives anew when it gets a GPU back."""
        found: Object = json.loads((self._node / "state.json").read_text())
        for gpu in found["gpus"].values():
            del gpu["minor"]
        return found

    def left(self) -> list[str]:
        """The files that are left, and the processes that name the folder."""
        files = (*self._temporary.iterdir(), *self._node.glob("*undo*"))
        return [path.name for path in files] + [*processes_of(self._temporary).values()]

    def wait_until_nothing_is_left(self) -> None:
        """Wait for the watchdog, which ends by itself."""
        eventually("nothing is left", self.left, operator.not_, seconds=90)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, for the sockets below it."""
    usual = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="v", dir=usual if len(usual) < 20 else "/tmp") as name:
        yield Path(name)


@pytest.mark.parametrize("step", (*STEPS, *OTHER_STEPS) if is_long() else STEPS)
def test_a_machine_is_brought_back_after_a_kill_at(folder: Path, step: str) -> None:
    kind, has_kind, _ = step.partition(": ")
    # Only the driver of the L4s can limit memory.
    machine = Machine(folder, "l4-quad" if kind == "memory-limits" else "gh200")
    before = machine.state()

    # The kinds before the step take their time, so only that of the step is tried.
    assert machine.kill_at(step, kind if has_kind else MIG)
    said = machine.restored()

    assert "is as it was before the verification" in said, said
    assert machine.state() == before
    machine.wait_until_nothing_is_left()


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_at_a_signal_the_machine_is_brought_back_at_once(folder: Path, by: signal.Signals) -> None:
    machine = Machine(folder, "gh200")
    before = machine.state()

    assert machine.kill_at("mps: start a second probe", "mps", by=by)

    assert machine.state() == before
    machine.wait_until_nothing_is_left()


def test_a_restoration_that_is_killed_is_done_by_the_next_one(folder: Path) -> None:
    machine = Machine(folder, "gh200")
    before = machine.state()
    assert machine.kill_at(f"{MIG}: unprepare", MIG)
    assert machine.kill_at("end the processes")
    assert machine.kill_at("bring GPU")

    said = machine.restored()

    assert "is as it was before the verification" in said, said
    assert machine.state() == before
    machine.wait_until_nothing_is_left()
