"""What a verification wrote down is enough to bring the machine back, whatever was changed since."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from driver.errors import ConfigError
from driver.nvml.api import NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.mig import Placement
from gpuctl.verify.change.gpu_state import GpuState, gpu_tools, read_state
from gpuctl.verify.change.undo import UndoRecord, record_path, restore, started
from tests.gpuctl.verify.subjects import machine_in, places_of


class Node:
    """A machine whose first GPU is written down."""

    def __init__(self, folder: Path, name: str) -> None:
        self.machine = machine_in(folder, name)
        self.places = places_of(folder, self.machine)
        self.pci = self.machine.spec.slots[0].pci
        self.record = UndoRecord(self.places, [self.state()])

    def state(self) -> GpuState:
        """The state of the GPU now."""
        with gpu_tools(self.places) as tools:
            return read_state(tools, self.pci)

    def restored(self) -> list[tuple[str, str]]:
        """Restore the machine; returns the checks with what came of them."""
        return [(one.check, one.status) for one in restore(self.places, lambda _step: None)]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with an H100."""
    return Node(tmp_path, "hgx-h100")


RESTORED = [("processes ended", "ok"), ("GPU 0000:1b:00.0 restored", "ok")]


def test_partitions_modes_and_time_slices_are_brought_back_once(node: Node) -> None:
    before = node.state()
    with gpu_tools(node.places) as tools:

        def change(device: NvmlDevice, _watch: Watch) -> None:
            device.set_compute_mode("exclusive-process")
            device.set_persistence_mode(True)
            device.set_mig_mode(True)
            device.create_gpu_instance(9, Placement(4, 4))

        tools.discovery.on_gpu(node.pci, change)
        tools.time_slices.set(before.uuid, "Long")
    assert node.state() != before

    assert node.restored() == RESTORED

    assert node.state() == before
    assert not record_path(node.places).exists()
    assert node.restored() == [("restored", "ok")]


@pytest.mark.parametrize("bound", [True, False], ids=["bound to vfio", "without a driver"])
def test_a_gpu_gets_its_kernel_driver_back(node: Node, *, bound: bool) -> None:
    before = node.state()
    with gpu_tools(node.places) as tools:
        tools.kernel.load_module("vfio-pci", 1)
        files = tools.functions(node.pci)
        files.set_override("vfio-pci")
        files.unbind("nvidia", "vfio-pci")
        if bound:
            files.probe("vfio-pci")
    assert node.state().functions != before.functions

    assert node.restored() == RESTORED

    assert node.state() == before


def test_a_gpu_that_cannot_be_brought_back_keeps_the_record(node: Node) -> None:
    with gpu_tools(node.places) as tools:
        tools.discovery.on_gpu(node.pci, lambda device, _watch: device.set_compute_mode("prohibited"))
    node.machine.lie("set_compute_mode")

    found = restore(node.places, lambda _step: None)

    assert [one.status for one in found] == ["ok", "fail"]
    assert found[1].details == ("the compute mode is prohibited, not default",)
    node.machine.heal()
    assert node.restored() == RESTORED


def test_a_process_is_ended_only_if_it_is_the_one_that_was_started(node: Node) -> None:
    with started_program() as ours, started_program() as another:
        node.record.note_process(ours.pid)
        node.record.note_process(another.pid)
        text = json.loads(record_path(node.places).read_bytes())
        # As if the process had ended, and another one had got its id.
        text["processes"][1]["ticks"] -= 1
        record_path(node.places).write_text(json.dumps(text))

        assert node.restored() == RESTORED

        assert ours.wait(5) == -signal.SIGKILL
        assert another.poll() is None


def test_nothing_is_verified_or_restored_beside_a_verification_that_runs(node: Node) -> None:
    with started_program() as other:
        text = json.loads(record_path(node.places).read_bytes())
        text["owner"] = asdict(started(other.pid))
        record_path(node.places).write_text(json.dumps(text))

        with pytest.raises(ConfigError, match="--restore"):
            UndoRecord(node.places, [])
        (refused,) = restore(node.places, lambda _step: None)

    assert (refused.status, refused.message) == (
        "fail",
        f"the verification still runs, as process {other.pid}",
    )


@contextmanager
def started_program() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until the block ends."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        yield process
