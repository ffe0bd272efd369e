"""What a verification wrote down is enough to bring the machine back, whatever was changed since."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.errors import ConfigError
from driver.nvml.mig import Placement
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.doctor.inside.places import Places
from gpuctl.verify.change.gpu_state import GpuState, gpu_tools, read_state
from gpuctl.verify.change.undo import UndoRecord, record_path, restore
from tests.gpuctl.verify.subjects import machine_in, places_of


class Node:
    """A machine whose first GPU is written down; ``run`` restores it."""

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

        def change(device, watch) -> None:  # type: ignore[no-untyped-def]  # a job of Discovery.on_gpu
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
