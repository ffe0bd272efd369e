"""What the plugin destroys while somebody looks is absent, and no fault of the GPU."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controller.mig_node import cut
from tests.driver.hardware.looked_at import Node, reasons
from tests.driver.mig_machines import device
from tests.gpus import Code, Discovery, FakeDevice, FakeMachine, FakeNvml, Gpu, Guard


class BusyDevice(FakeDevice):
    """A GPU on which something happens just before a call, once."""

    before: dict[str, Callable[[], None]]

    def __getattribute__(self, name: str) -> Any:
        super().__getattribute__("before").pop(name, lambda: None)()
        return super().__getattribute__(name)


class Busy:
    """One H100 with two partitions, at which somebody looks while another one works on it."""

    def __init__(self, guard: Guard) -> None:
        self.machine = FakeMachine.open("hgx-h100")
        cut(self.machine, 0, slices=1, start=6)
        cut(self.machine, 0, slices=3, start=0)
        self.before: dict[str, Callable[[], None]] = {}
        self._discovery = Discovery(self._nvml(), Path("/no-sysfs"), guard)

    def _nvml(self) -> FakeNvml:
        nvml, before = self.machine.nvml(), self.before
        plain = nvml.device_by_index

        def busy(index: int) -> FakeDevice:
            device = plain(index)
            device.__class__ = BusyDevice
            device.before = before  # type: ignore[attr-defined]  # it is a BusyDevice now
            return device

        nvml.device_by_index = busy  # type: ignore[method-assign]
        return nvml

    def look(self) -> Gpu:
        return self._discovery.snapshot().gpus[0]

    def destroy(self, gpu_instance_id: int) -> None:
        """Do what the plugin does when a claim ends."""
        gpu = device(self.machine)
        for inside in gpu.compute_instances(gpu_instance_id):
            gpu.destroy_compute_instance(gpu_instance_id, inside.id)
        gpu.destroy_gpu_instance(gpu_instance_id)


@pytest.fixture
def busy() -> Iterator[Busy]:
    guard = Guard()
    yield Busy(guard)
    guard.close()


def _profiles(gpu: Gpu) -> list[str]:
    assert gpu.mig is not None
    assert [one.id for one in gpu.mig.instances] == [one.gpu_instance.id for one in gpu.mig.partitions]
    return sorted(one.profile for one in gpu.mig.partitions)


@pytest.mark.parametrize("call", ["gpu_instances", "mig_devices", "compute_instances"])
def test_an_instance_that_is_destroyed_during_a_look_is_absent(busy: Busy, call: str) -> None:
    mig = busy.look().mig
    assert mig is not None
    small = next(one for one in mig.partitions if one.profile == "1g.10gb")
    busy.before[call] = lambda: busy.destroy(small.gpu_instance.id)

    gpu = busy.look()

    assert gpu.problems == ()
    assert busy.before == {}
    assert _profiles(gpu) == ["3g.40gb"]


@pytest.mark.parametrize("call", ["gpu_instances", "mig_devices"])
def test_a_list_that_names_what_went_away_is_read_once_more(busy: Busy, call: str) -> None:
    before = busy.look()
    busy.machine.fail(call, 0, Code.NOT_FOUND, times=1)
    assert busy.look() == before


def test_not_found_of_an_instance_that_is_there_is_a_fault_and_changes_nothing(busy: Busy) -> None:
    before = busy.look()
    busy.machine.fail("compute_instances", 0, Code.NOT_FOUND)

    gpu = busy.look()

    assert gpu.mig == before.mig
    assert [problem.reason for problem in gpu.problems] == ["failing"]


def test_a_field_that_the_driver_does_not_know_is_told_by_the_architecture(busy: Busy) -> None:
    busy.machine.fail("mig_without_reset", 0, Code.INVALID_ARGUMENT)
    gpu = busy.look()
    assert gpu.mig is not None
    assert (gpu.mig.without_reset, gpu.problems, gpu.unanswered) == (True, (), frozenset())


PROFILES = ("gpu_instance_profiles", "gpu_instance_placements")


@pytest.mark.parametrize("call", PROFILES)
def test_what_a_gpu_offers_is_read_once(node: Node, call: str) -> None:
    before = node.discovery.snapshot()
    node.machine.fail(call)
    assert node.discovery.snapshot() == before


@pytest.mark.parametrize("call", PROFILES)
def test_what_a_gpu_offers_is_read_anew_with_the_session_until_it_was_read(node: Node, call: str) -> None:
    before = node.discovery.snapshot()
    node.machine.fail(call, gpu=1)
    node.discovery.close()
    for _ in range(2):
        failing = node.discovery.snapshot()
        assert reasons(failing) == {1: ["failing"]}
        assert failing.gpus[1].mig == before.gpus[1].mig
    node.machine.heal()
    assert node.discovery.snapshot() == before


@pytest.mark.parametrize("call", PROFILES)
def test_what_a_gpu_offers_is_read_anew_in_another_mode_and_of_another_board(node: Node, call: str) -> None:
    node.discovery.snapshot()
    cut(node.machine, 0, slices=1, start=6)
    node.machine.replace_board(3)
    node.machine.fail(call)
    after = node.discovery.snapshot()
    assert [gpu.index for gpu in after.gpus if gpu.problems] == [0, 3]
    assert after.gpus[0].mig is not None
    assert after.gpus[3].mig is None
