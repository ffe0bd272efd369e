"""What a verification wrote down is enough to bring the machine back, whatever was changed since."""

import json
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gpuctl.verify.change.gpu_state import gpu_tools, read_state, record_path
from gpuctl.verify.change.undo import UndoRecord, restore, started
from tests.gpuctl.verify.subjects import machine_in, places_of
from tests.gpus import ConfigError, NvmlDevice, Placement


class Node:
    """A machine whose GPU is written down."""

    def __init__(self, folder: Path) -> None:
        self.machine = machine_in(folder, "gh200")
        self.places = places_of(folder, self.machine)
        self.pci = self.machine.spec.slots[0].pci

    def write_down(self) -> None:
        """Write the record."""
        with gpu_tools(self.places) as tools:
            UndoRecord(self.places, [read_state(tools, self.pci)])

    def change(self, job: Callable[[NvmlDevice], object]) -> None:
        """Change the GPU by NVML."""
        with gpu_tools(self.places) as tools:
            tools.discovery.on_gpu(self.pci, lambda device, _watch: job(device))

    def state(self) -> tuple[object, ...]:
        """The state of the GPU and of its function, without what a driver counts anew."""
        node = self.machine.node()
        function = node.kernel.functions[self.pci]
        return replace(node.machine.gpus[self.pci], minor=0), replace(function, bound=0)

    def restored(self) -> list[str]:
        """Restore the machine; returns what came of each check."""
        return [one.status for one in restore(self.places, lambda _step: None)]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with one GPU, which is written down."""
    node = Node(tmp_path)
    node.write_down()
    return node


def cut_and_slice(node: Node) -> None:
    """Change modes, partitions and time slices."""

    def change(device: NvmlDevice) -> None:
        device.set_compute_mode("exclusive-process")
        device.set_persistence_mode(True)
        device.set_mig_mode(True)
        device.create_gpu_instance(9, Placement(4, 4))

    node.change(change)
    with gpu_tools(node.places) as tools:
        tools.time_slices.set(node.machine.uuid(node.pci), "Long")


def give_to_vfio(node: Node) -> None:
    """Change the kernel driver."""
    with gpu_tools(node.places) as tools:
        tools.kernel.load_module("vfio-pci", 1)
        files = tools.functions(node.pci)
        files.set_override("vfio-pci")
        files.unbind("nvidia", "vfio-pci")
        files.probe("vfio-pci")


@pytest.mark.parametrize("change", [cut_and_slice, give_to_vfio])
def test_a_gpu_is_brought_back_once(node: Node, change: Callable[[Node], None]) -> None:
    before = node.state()
    change(node)
    assert node.state() != before

    assert node.restored() == ["ok", "ok"]

    assert node.state() == before
    assert not record_path(node.places).exists()
    assert node.restored() == ["ok"]


def test_what_a_kill_leaves_goes_with_the_restoration(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary folder stayed for ever."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    killed = gpu_tools(node.places)
    killed.__enter__().time_slices.set(node.machine.uuid(node.pci), "Long")

    assert node.restored() == ["ok", "ok"]

    assert [*temporary.iterdir(), *tmp_path.glob("*undo*")] == []
    killed.__exit__(None, None, None)


def test_partitions_that_were_there_before_stay(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.change(lambda device: (device.set_mig_mode(True), device.create_gpu_instance(9, Placement(0, 4))))
    node.write_down()
    before = node.state()
    node.change(lambda device: device.create_gpu_instance(9, Placement(4, 4)))
    assert node.state() != before

    assert node.restored() == ["ok", "ok"]

    assert node.state() == before


def test_a_gpu_that_cannot_be_brought_back_keeps_the_record(node: Node) -> None:
    node.change(lambda device: device.set_compute_mode("prohibited"))
    node.machine.lie("set_compute_mode")

    found = restore(node.places, lambda _step: None)

    assert [one.status for one in found] == ["ok", "fail"]
    assert found[1].details == ("the compute mode is prohibited, not default",)
    node.machine.heal()
    assert node.restored() == ["ok", "ok"]


def test_a_process_is_ended_only_if_it_is_the_one_that_was_started(tmp_path: Path) -> None:
    places = places_of(tmp_path, machine_in(tmp_path, "t4"))
    record = UndoRecord(places, [])
    with started_program() as ours, started_program() as another:
        record.note_process(ours.pid)
        record.note_process(another.pid)
        text = json.loads(record_path(places).read_bytes())
        # As if the process had ended, and another one had got its id.
        text["processes"][1]["ticks"] -= 1
        record_path(places).write_text(json.dumps(text))

        assert [one.status for one in restore(places, lambda _step: None)] == ["ok"]

        assert ours.wait(5) == -signal.SIGKILL
        assert another.poll() is None


def test_nothing_is_verified_or_restored_beside_a_verification_that_runs(tmp_path: Path) -> None:
    places = places_of(tmp_path, machine_in(tmp_path, "t4"))
    UndoRecord(places, [])
    with started_program() as other:
        text = json.loads(record_path(places).read_bytes())
        text["owner"] = asdict(started(other.pid))
        record_path(places).write_text(json.dumps(text))

        with pytest.raises(ConfigError, match=f"another verification runs, as process {other.pid}"):
            UndoRecord(places, [])
        (refused,) = restore(places, lambda _step: None)

    assert refused.status == "fail"
    assert refused.message == f"the verification still runs, as process {other.pid}"


@contextmanager
def started_program() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until the block ends."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        yield process
