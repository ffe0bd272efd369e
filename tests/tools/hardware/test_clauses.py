"""Each clause of the contract is broken by an NVML that breaks it, and the words say what was wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from driver.nvml.mig import Engines
from driver.nvml.use.calls import MemoryUse, Utilisation
from driver.nvml.vgpu import VgpuType
from tests.gpus import (
    FakeMachine,
    GpuInstance,
    LicensableFeature,
    MigDevice,
    NvLinkEnd,
    Nvml,
    Placement,
    ProcessUse,
    load_catalogue,
)
from tools.hardware.contract.run import CLAUSES, ClauseResult, check_contract, keep_clause

GIB = 1 << 30
V100 = FakeMachine.open("dgx1-v100").pci(0)
H100 = load_catalogue("h100-80gb").profiles
FIRST = Placement(0, 1)
UNLICENSED = LicensableFeature("P", licensed=False, enabled=True, expires=datetime(2027, 1, 1, tzinfo=UTC))
MIG = MigDevice("MIG-1", "GPU-other", 1, 0, GIB, 14, 1, Engines(1, 0, 0, 0, 0))


class Lying:
    """An NVML of which one method, of the node or of each GPU, answers something else."""

    def __init__(self, truth: object, method: str, answer: object) -> None:
        self.truth, self._method, self._answer = truth, method, answer

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            return lambda *_: self._answer
        return getattr(self.truth, name)

    def device_by_index(self, index: int) -> Lying:
        return Lying(cast("Nvml", self.truth).device_by_index(index), self._method, self._answer)

    def device_by_pci(self, pci: Any) -> Lying:
        if self._method == "device_by_pci":
            return Lying(cast("Nvml", self.truth).device_by_index(0), "", None)
        return Lying(cast("Nvml", self.truth).device_by_pci(pci), self._method, self._answer)

    def watch_events(self, devices: Any) -> Any:
        events = cast("Nvml", self.truth).watch_events([one.truth for one in devices])
        return Lying(events, self._method, self._answer)


def kept(clause_name: str, nvml: object) -> ClauseResult:
    """How an NVML keeps a clause."""
    (clause,) = [one for one in CLAUSES if one.name == clause_name]
    return keep_clause(clause, cast("Nvml", nvml))


@pytest.mark.parametrize(
    ("machine", "clause", "method", "answer", "words"),
    [
        ("t4", "handles of an ended session", "shutdown", None, "uuid with a handle of an ended session"),
        ("t4", "versions", "driver_version", "new", "the version of driver is 'new'"),
        ("l4-quad", "identity", "uuid", "GPU-1", "4 GPUs have the same UUID: GPU-1"),
        ("l4-quad", "identity", "minor", 3, "4 GPUs have the same minor number: 3"),
        ("t4", "identity", "uuid", "MIG-1", "the UUID is 'MIG-1'"),
        ("t4", "index", "index", 5, "the GPU at index 0 says that its index is 5"),
        ("l4-quad", "address", "device_by_pci", None, "if it is found by its address"),
        ("t4", "missing GPUs", "device_by_pci", None, "device_by_pci(ffff:fe:1f.0) succeeded"),
        ("t4", "description", "name", "", "its name is empty"),
        ("t4", "use", "utilisation", Utilisation(7.0, 0.0), "it is busy beyond measure"),
        ("t4", "use", "power_milliwatts", -1, "power_milliwatts is -1"),
        ("t4", "use", "temperature_celsius", 4000, "temperature_celsius is 4000"),
        ("t4", "vGPU types", "vgpu_types", (VgpuType(1, "Q", "C", GIB, 1),), "it is no vGPU host"),
        ("vgpu-host-l40s", "vGPU types", "vgpu_types", (VgpuType(1, "Q", "C", GIB, 0),), "can be made"),
        ("t4", "licenses", "licensable_features", (UNLICENSED,), "a license that is not there expires"),
        ("t4", "memory", "memory_use", MemoryUse(GIB, 0, 0), "bytes in one call"),
        ("t4", "memory", "memory_use", MemoryUse(15 * GIB, 15 * GIB, 1), "its use of memory is impossible"),
        ("t4", "memory of partitions", "partition_memory_use", MemoryUse(GIB, 0, 0), "not there succeeded"),
        ("t4", "processes", "processes", (ProcessUse(5, None),), "its processes are [5] in one call, ()"),
        ("t4", "event sets", "watched", frozenset({"GPU-2"}), "watches GPU-2"),
        ("t4", "event sets", "kinds", {}, "for {}"),
        ("t4", "event sets", "wait", None, "a wait for events of a closed set succeeded"),
        ("t4", "event sets of an ended session", "wait", None, "a wait for events of an ended session"),
        ("dgx1-v100", "NVLinks", "nvlinks", (NvLinkEnd("gpu", V100),), "NVLinks lead from"),
        ("t4", "GPUs without MIG", "mig_devices", (MIG,), "it has no MIG, and mig_devices answers"),
        ("t4", "GPUs without MIG", "gpu_instances", (), "gpu_instances without MIG succeeded"),
        ("gh200", "MIG profiles", "gpu_instance_profiles", H100[::-1], "the indexes of its profiles are"),
        ("gh200", "MIG profiles", "gpu_instance_placements", (FIRST,), "7 instances of 1g.12gb have"),
        ("gh200", "MIG off", "gpu_instances", (GpuInstance(1, 19, FIRST),), "it has GPU instances"),
    ],
)
def test_a_broken_promise_is_found(
    machine: str, clause: str, method: str, answer: object, words: str
) -> None:
    assert kept(clause, FakeMachine.open(machine).nvml()).outcome in ("kept", "nothing to check")
    found = kept(clause, Lying(FakeMachine.open(machine).nvml(), method, answer))

    assert found.outcome == "broken"
    assert words in " ".join(found.lines)


def test_a_session_that_is_open_already_breaks_the_promise_about_calls_before_init() -> None:
    nvml = FakeMachine.open("t4").nvml()
    nvml.init()
    assert "driver_version before init succeeded" in kept("calls before init", nvml).lines[0]


def test_a_mig_device_belongs_to_an_instance_of_its_gpu() -> None:
    machine = FakeMachine.open("gh200")
    nvml = machine.nvml()
    nvml.init()
    nvml.device_by_index(0).set_mig_mode(True)
    assert kept("MIG devices", machine.nvml()).outcome == "kept"
    found = kept("MIG devices", Lying(machine.nvml(), "mig_devices", (MIG,)))
    assert "MIG-1 is in none of the GPU instances []" in found.lines[0]


def test_a_call_that_hangs_is_named_and_ends_the_contract() -> None:
    machine = FakeMachine.open("l4-quad")
    machine.hang("name", gpu=2)
    found = check_contract(machine.nvml, call_seconds=0.3)
    machine.heal()
    (hung,) = (one for one in found if one.outcome == "hung")
    assert hung.lines == (f"nvmlDeviceGetName of {machine.pci(2)} did not return within 0.3 s",)
    assert found[-1].outcome == "not run"
