"""Every kind of claim works on every fake machine that has it, and a fault of the GPU is named."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fakegpu.machine.state import GpuState
from gpuctl.doctor.report import picture
from gpuctl.verify.change import run
from gpuctl.verify.change.claims import Limits
from gpuctl.verify.change.kinds import Kind
from tests import fork_server
from tests.examples import is_long
from tests.gpuctl.approved import approve
from tests.gpuctl.verify.change.verifying import some_of
from tests.gpuctl.verify.subjects import machine_in, subject_of
from tests.gpus import FakeMachine, known_machines

ALL_PARTITIONS = "gh200"
"""The machine on which partitions of all profiles are made."""
DIFFERENT = (ALL_PARTITIONS, "dgx-a100", "l4-quad", "vgpu-host-l40s", "a100-vgpu-guest")
"""With MIG, with MIG that needs a reset, without MIG, made into vGPUs, with a vGPU; long tests have all."""

VGPU_HOSTS = {"vgpu-host-a100-mdev", "vgpu-host-l40s", "vgpu-and-passthrough"}
"""Machines whose GPUs are made into vGPUs, which are left alone."""
QUICK_LIMITS = Limits(prepare=8.0, probe=60.0, unprepare=30.0, same_again=10.0)


def with_one_partition(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """All kinds, but only the first of the partitions."""
    partitions = [one for one in kinds if one.form == "partition"]
    return tuple(one for one in kinds if one not in partitions[1:])


def without_minors(machine: FakeMachine) -> dict[str, GpuState]:
    """The GPUs of a machine, without the numbers that a driver gives anew when it gets a GPU back."""
    return {str(pci): replace(gpu, minor=0) for pci, gpu in machine.state.gpus.items()}


@pytest.mark.parametrize("name", known_machines() if is_long() else DIFFERENT)
def test_all_kinds_work_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name != ALL_PARTITIONS:
        some_of(monkeypatch, with_one_partition)
    machine = machine_in(tmp_path, name)
    before = without_minors(machine)

    found = run.verify_changes(subject_of(tmp_path, machine), lambda _step: None, start=fork_server.start)

    assert [one for one in found if one.status not in ("ok", "skipped")] == []
    if name in DIFFERENT:
        approve(f"verify/may-change-{name}", re.sub(r"\d+ ms", "N ms", f"{picture(found, wide=True)}\n"))
    assert without_minors(machine) == before
    if name not in VGPU_HOSTS:
        assert {"whole", "time-slicing"} <= {one.check for one in found if one.status == "ok"}


@pytest.mark.parametrize(
    ("spoil", "call", "kind", "words"),
    [
        ("fail", "create_gpu_instance", "mig-1g.10gb", "nvmlDeviceCreateGpuInstanceWithPlacement"),
        ("lie", "set_compute_mode", "mps", "was set to compute mode exclusive-process but is in default"),
        ("hang", "set_compute_mode", "mps", "prepare did not succeed within 8 s"),
    ],
)
def test_a_fault_is_named_and_the_other_kinds_are_tried(
    spoil: str, call: str, kind: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_of(monkeypatch, lambda kinds: tuple(one for one in kinds if one.name in ("whole", kind)))
    machine = machine_in(tmp_path, "hgx-h100")
    subject = subject_of(tmp_path, machine)
    getattr(machine, spoil)(call)

    found = run.verify_changes(subject, lambda _step: None, QUICK_LIMITS, fork_server.start)

    said = {one.check: one for one in found}
    assert said["whole"].status == "ok"
    assert said[kind].status == "fail"
    assert words in said[kind].message
    assert any(line.startswith("kubeletplugin: ") for line in said[kind].details)
