"""nvidia-smi, PCI bus, kernel driver and device nodes agree with NVML, or each difference is named."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from driver.hardware.functions import PciView
from driver.hardware.gpu import Gpu, Inventory, Partition
from driver.nvml.health.calls import EccErrors, FabricHealth, RemappedRows
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.spec import known_machines
from fakegpu.smi.program import main
from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Result, run_checks
from gpuctl.doctor.inside.checks import INSIDE
from gpuctl.verify.checks.kernel_checks import bus_differences, information_differences, number_differences
from gpuctl.verify.checks.node_checks import NODE_CHECKS, RunSmi, ask_gpus, compare_smi, run_smi
from gpuctl.verify.checks.smi_differences import Asked
from gpuctl.verify.subject import Subject
from kubeletplugin.devices.host.device_nodes import DeviceNode
from kubeletplugin.devices.host.driver_programs import ProgramHangs, Said
from tests.gpuctl.verify.subjects import built_machine, subject_of

UNLICENSED = "l40s-vgpu-unlicensed"
OF_EACH_KIND = ("hgx-h100", "t4", "a30-vgpu-guest", "vgpu-and-passthrough", "gb200-tray")
WITHOUT_PROCESS = tuple(check for check in NODE_CHECKS if check.name != "nvidia-smi")


def in_process(folder: Path, machine: FakeMachine) -> RunSmi:
    """Runs the fake nvidia-smi in this process."""

    def run(*words: str) -> Said:
        with redirect_stdout(io.StringIO()) as said:
            code = main([str(machine.flag), str(folder / "driver"), "nvidia-smi", *words])
        return Said(code, tuple(said.getvalue().splitlines()))

    return run


@cache
def node() -> tuple[Subject, dict[PciAddress, Asked], dict[tuple[str, ...], Said]]:
    """Eight H100, the first cut into two partitions: the node, more of NVML's answers, nvidia-smi's words."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        machine = built_machine(folder, "hgx-h100")
        cut(machine)
        subject, run = subject_of(folder, machine), in_process(folder, machine)
        return subject, ask_gpus(subject), {words: run(*words) for words in (("-q", "-x"), ("-L",))}


def cut(machine: FakeMachine) -> None:
    nvml = machine.nvml()
    nvml.init()
    device = nvml.device_by_index(0)
    device.set_mig_mode(True)
    for name, place in (("3g.40gb", 0), ("1g.10gb", -1)):
        profile = next(one for one in device.gpu_instance_profiles() if one.name == name)
        instance = device.create_gpu_instance(profile.id, device.gpu_instance_placements(profile.id)[place])
        offered = device.compute_instance_profiles(instance.id)
        device.create_compute_instance(instance.id, max(offered, key=lambda one: one.slices).id)
    nvml.shutdown()


def inventory() -> Inventory:
    found = node()[0].seen.inventory
    assert not isinstance(found, Unread)
    return found


def differences(found: Inventory, asked: dict[PciAddress, Asked] | None = None) -> tuple[str, ...]:
    """The differences between these answers of NVML and what nvidia-smi printed."""
    _, answers, said = node()
    finding = compare_smi(found, asked or answers, lambda *words: said[words])
    lines = finding.details if finding.status == "fail" else ()
    return tuple(line for line in lines if not line.startswith("not compared"))


def with_gpu(number: int, **fields: Any) -> Inventory:
    gpus = list(inventory().gpus)
    gpus[number] = replace(gpus[number], **fields)
    return replace(inventory(), gpus=tuple(gpus))


def result(subject: Subject, name: str) -> Result:
    (found,) = run_checks("node", [check for check in NODE_CHECKS if check.name == name], subject)
    return found


def test_nothing_differs_on_a_machine_of_each_kind(tmp_path: Path) -> None:
    assert failures(tmp_path, OF_EACH_KIND) == []


def test_nothing_differs_on_any_other_fake_machine(tmp_path: Path) -> None:
    others = sorted(set(known_machines()).difference(OF_EACH_KIND))
    assert failures(tmp_path, others) == [(UNLICENSED, "vgpu-license")]


def failures(folders: Path, machines: Iterable[str]) -> list[tuple[str, str]]:
    """The checks that fail on these machines, all but that of nvidia-smi, which has to be ok."""
    failed = []
    for name in machines:
        folder = folders / name
        machine = built_machine(folder, name)
        subject = subject_of(folder, machine)
        assert not isinstance(subject.seen.inventory, Unread)
        smi = compare_smi(subject.seen.inventory, ask_gpus(subject), in_process(folder, machine))
        assert smi.status == "ok", (name, smi)
        found = run_checks("node", WITHOUT_PROCESS, subject)
        failed += [(name, one.check) for one in found if one.status == "fail"]
        assert {one.check: one.status for one in found}["pci-bus"] == "ok", name
        assert {one.check: one.status for one in found}["kernel-driver"] == "ok", name
    return failed


@pytest.mark.parametrize("name", ["hgx-h100", "dgx1-v100", "vgpu-and-passthrough"])
def test_modes_and_faults_of_a_board_are_the_same_in_both(tmp_path: Path, name: str) -> None:
    machine = built_machine(tmp_path, name)
    machine.recovery_action(0, "drain-p2p")
    machine.recovery_action(1, "drain-and-reset")
    machine.rows(0, RemappedRows(3, 1, pending=True, failed=False))
    machine.page_pending(0, True)
    machine.ecc(0, EccErrors(5, 2))
    machine.fabric_health(0, FabricHealth("limited-capacity"))
    machine.set_minors({0: 1, 1: 0})
    nvml = machine.nvml()
    nvml.init()
    nvml.device_by_index(1).set_compute_mode("exclusive-process")
    nvml.device_by_index(1).set_persistence_mode(True)
    nvml.shutdown()
    subject = subject_of(tmp_path, machine)
    assert not isinstance(subject.seen.inventory, Unread)
    found = compare_smi(subject.seen.inventory, ask_gpus(subject), in_process(tmp_path, machine))
    assert found.status == "ok", found


def test_the_program_itself_is_run_and_partitions_are_compared_by_name(tmp_path: Path) -> None:
    machine = built_machine(tmp_path, "hgx-h100")
    cut(machine)
    found = result(subject_of(tmp_path, machine), "nvidia-smi")
    assert found.status == "ok", found
    assert "8 GPUs in 22" in found.message
    calls = (tmp_path / "driver/var/log/nvidia-calls.log").read_text().splitlines()
    assert calls == ["nvidia-smi -q -x", "nvidia-smi -L"]


def test_a_gpu_that_nvml_alone_cannot_read_is_a_difference(tmp_path: Path) -> None:
    machine = built_machine(tmp_path, "t4")
    machine.fail("uuid", gpu=0)
    subject = subject_of(tmp_path, machine)
    address = min(machine.state.gpus)
    assert result(subject, "nvidia-smi").details == (
        "node: number of GPUs: NVML 0, nvidia-smi 1",
        f"GPU {address}: only nvidia-smi lists it",
    )
    bus = result(subject, "pci-bus")
    assert (bus.status, bus.details) == (
        "fail",
        (f"GPU {address}: NVML lacks it; its kernel driver is nvidia",),
    )


def test_gpus_that_a_container_was_not_given_are_no_difference(tmp_path: Path) -> None:
    machine = built_machine(tmp_path, "l4-quad")
    machine.remove(3)
    (tmp_path / "driver/dev/nvidia3").unlink()
    subject = subject_of(tmp_path, machine)
    lacking = max(machine.state.gpus)
    bus, kernel = result(subject, "pci-bus"), result(subject, "kernel-driver")
    assert (bus.status, kernel.status) == ("ok", "ok")
    assert bus.details == (f"GPU {lacking}: NVML lacks it; its kernel driver is nvidia",)
    assert kernel.details == (f"GPU {lacking}: it has no device node here",)


def test_every_value_that_nvml_reports_differently_is_named() -> None:
    condition = inventory().gpus[1].condition
    rows = RemappedRows(1, 2, pending=True, failed=True)
    changed = with_gpu(
        1,
        uuid="GPU-0",
        minor=9,
        product_name="NVIDIA H200",
        brand="Tesla",
        architecture="Ampere",
        addressing_mode="ATS",
        module_id=7,
        memory_bytes=(81559 << 20) + (1 << 20),
        mig_enabled=True,
        mig=replace(inventory().gpus[1].mig, pending=True),  # type: ignore[type-var] # an H100 has MIG
        condition=replace(
            condition, recovery_action="reset", rows=rows, fabric=FabricHealth("limited-capacity")
        ),
    )
    asked = dict(node()[1])
    pci = changed.gpus[1].pci
    fabric = asked[pci].fabric
    assert fabric is not None
    asked[pci] = Asked(
        "prohibited",
        True,
        "passthrough",
        replace(fabric, state="in-progress", cluster_uuid="1", clique=4),
        EccErrors(3, 4),
    )
    lines = differences(replace(changed, driver_version="1.0", cuda_driver_version="2.0"), asked)
    named = {line.removeprefix(f"GPU {pci}: ") for line in lines if line.startswith(f"GPU {pci}: ")}
    assert {line for line in named if not line.startswith(("UUID", "nvidia-smi -L"))} == {
        "minor number: NVML 9, nvidia-smi 1",
        "name: NVML NVIDIA H200, nvidia-smi NVIDIA H100 80GB HBM3",
        "brand: NVML Tesla, nvidia-smi NVIDIA",
        "architecture: NVML Ampere, nvidia-smi Hopper",
        "addressing mode: NVML ATS, nvidia-smi HMM",
        "module id: NVML 7, nvidia-smi 4",
        "memory: NVML 81560 MiB, nvidia-smi 81559 MiB",
        "MIG mode: NVML Enabled, nvidia-smi Disabled",
        "pending MIG mode: NVML Enabled, nvidia-smi Disabled",
        "recovery action: NVML reset, nvidia-smi None",
        "remapped rows corrected: NVML 1, nvidia-smi 0",
        "remapped rows uncorrected: NVML 2, nvidia-smi 0",
        "remapped rows pending: NVML Yes, nvidia-smi No",
        "remapped rows failed: NVML Yes, nvidia-smi No",
        "fabric state: NVML in-progress, nvidia-smi Completed",
        "fabric cluster: NVML 1, nvidia-smi 00000000-0000-0000-0000-000000000000",
        "fabric clique: NVML 4, nvidia-smi 0",
        "fabric health: NVML limited-capacity, nvidia-smi Healthy",
        "compute mode: NVML prohibited, nvidia-smi Default",
        "persistence mode: NVML Enabled, nvidia-smi Disabled",
        "virtualization mode: NVML passthrough, nvidia-smi None",
        "ECC errors corrected: NVML 3, nvidia-smi 0",
        "ECC errors uncorrected: NVML 4, nvidia-smi 0",
    }
    assert any(line.startswith("UUID: NVML GPU-0, nvidia-smi GPU-") for line in named)
    assert {"node: driver version: NVML 1.0, nvidia-smi 580.95.05"} <= set(lines)


def test_partitions_that_differ_are_named() -> None:
    gpu = inventory().gpus[0]
    first, second = partitions(gpu)
    place = f"GPU {gpu.pci}, GPU instance {first.gpu_instance.id}, compute instance 0"

    def of(*parts: Partition) -> tuple[str, ...]:
        return differences(with_gpu(0, mig=replace(gpu.mig, partitions=parts)))  # type: ignore[type-var] # as above

    assert of(first, second) == ()
    assert f"{place}: only nvidia-smi lists it" in of(second)
    smaller = replace(first, multiprocessors=1, memory_bytes=5 << 30, profile="3g.41gb")
    engines = replace(first.engines, copy=9, decoders=9, encoders=9, jpeg=9, ofa=9)
    lines = of(replace(smaller, engines=engines), second)
    assert [line.removeprefix(f"{place}: ").partition(":")[0] for line in lines] == [
        *("memory", "multiprocessors", "copy engines", "encoders", "decoders", "OFA engines", "JPEG engines"),
        "name in nvidia-smi -L",
    ]
    other = replace(first, gpu_instance=replace(first.gpu_instance, id=99), uuid="MIG-0")
    elsewhere = of(other, second)
    assert f"GPU {gpu.pci}, GPU instance 99, compute instance 0: only NVML lists it" in elsewhere
    assert f"MIG device {first.uuid} (3g.40gb): only nvidia-smi -L lists it" in elsewhere


def partitions(gpu: Gpu) -> tuple[Partition, ...]:
    assert gpu.mig is not None
    return gpu.mig.partitions


def test_a_value_that_only_one_of_both_has_is_no_difference_and_is_said() -> None:
    _, _, said = node()
    finding = compare_smi(inventory(), {}, lambda *words: said[words])
    assert finding.status == "ok"
    assert any("only nvidia-smi has it" in line and "compute mode" in line for line in finding.details)


def test_a_warning_beside_the_log_or_an_exit_code_is_passed_on() -> None:
    _, answers, said = node()
    warning = "WARNING: infoROM is corrupted at gpu 0000:1B:00.0"
    log = said["-q", "-x"]
    warned = {**said, ("-q", "-x"): Said(14, (*log.lines, warning))}
    finding = compare_smi(inventory(), answers, lambda *words: warned[words])
    assert (finding.status, finding.details) == ("warn", (warning,))
    assert "ended with 14" in finding.message


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo garbage", "printed no XML log: garbage"),
        ("echo 'Unable to determine the device handle for GPU0: GPU is lost' >&2; exit 15", "GPU is lost"),
        ("exit 9", "printed no XML log (exit code 9)"),
    ],
)
def test_a_program_that_prints_no_log_fails_the_check(tmp_path: Path, script: str, says: str) -> None:
    machine = built_machine(tmp_path, "t4")
    (tmp_path / "driver/usr/bin/nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    found = result(subject_of(tmp_path, machine), "nvidia-smi")
    assert found.status == "fail"
    assert says in found.message


def test_a_log_of_many_gpus_is_read_to_its_end(tmp_path: Path) -> None:
    machine = built_machine(tmp_path, "t4")
    # A GPU's log has thousands of lines with clocks, most of its 120 kB.
    lines = "yes '<supported_graphics_clock>1590 MHz</supported_graphics_clock>' | head -n 20000"
    (tmp_path / "driver/usr/bin/nvidia-smi").write_text(f"#!/bin/sh\n{lines}\necho end\n")
    said = run_smi(subject_of(tmp_path, machine), ["-q", "-x"])
    assert (len(said.lines), said.lines[-1]) == (20001, "end")


def test_a_program_that_hangs_is_given_up_and_a_missing_one_is_skipped(tmp_path: Path) -> None:
    machine = built_machine(tmp_path, "t4")
    program = tmp_path / "driver/usr/bin/nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 100\n")
    with pytest.raises(ProgramHangs):
        run_smi(subject_of(tmp_path, machine), ["-q"], timeout_seconds=0.05)
    program.unlink()
    assert result(subject_of(tmp_path, machine), "nvidia-smi").status == "skipped"


def test_what_the_bus_shows_differently_is_named() -> None:
    gpu = inventory().gpus[0]
    function = node()[0].seen.kernel.pci.function(gpu.pci)
    assert function is not None

    def of(**fields: Any) -> list[str]:
        changed = replace(function, **fields)
        return list(bus_differences(gpu, PciView((changed,) if changed.is_gpu else ()), changed))

    assert of() == []
    assert of(driver="vfio-pci") == [f"GPU {gpu.pci}: NVML lists it, and its kernel driver is vfio-pci"]
    assert of(numa_node=7) == [f"GPU {gpu.pci}: NUMA node: inventory 0, sysfs 7"]
    assert "class 0c03" in of(class_code=0x0C0330)[0]
    assert "nothing is at its address" in next(bus_differences(gpu, PciView(), None))


def test_what_the_kernel_driver_says_differently_is_named() -> None:
    gpu = inventory().gpus[0]

    def of(text: str) -> list[str]:
        return information_differences([gpu], {gpu.pci: text})

    same = f"Model: \t\t NVIDIA\nGPU UUID: \t {gpu.uuid}\nBus Location: \t {gpu.pci}\nDevice Minor: \t 0\n"
    assert of(same) == []
    assert of("GPU UUID: \t GPU-????????-????\n") == []
    assert of(same.replace("Minor: \t 0", "Minor: \t 3")) == [
        f"GPU {gpu.pci}: Device Minor: NVML 0, kernel driver 3"
    ]
    assert information_differences([], {gpu.pci: same}) == [f"GPU {gpu.pci}: only the kernel driver lists it"]
    assert information_differences([gpu], {}) == [f"GPU {gpu.pci}: only NVML lists it"]


def test_device_nodes_with_other_numbers_are_named() -> None:
    def nodes(**numbers: tuple[int, int]) -> list[DeviceNode]:
        return [DeviceNode(f"/dev/{name}", f"/dev/{name}", *pair) for name, pair in numbers.items()]

    uvm = DeviceNode("/dev/nvidia-uvm", "/dev/nvidia-uvm", 508, 0)
    good = [*nodes(nvidia0=(195, 0), nvidiactl=(195, 255)), uvm]
    majors = {"nvidia-frontend": 195, "nvidia-uvm": 508}
    assert number_differences(good, majors, {"/dev/nvidia0": 0}) == []
    assert number_differences(nodes(nvidia0=(195, 1)), majors, {"/dev/nvidia0": 0}) == [
        "/dev/nvidia0: 195:1, and should be 195:0"
    ]
    (cap,) = nodes(**{"nvidia-caps/nvidia-cap21": (237, 21)})
    assert number_differences([cap], {"nvidia-caps": 237}, {}) == []
    assert number_differences([cap], {"nvidia-caps": 238}, {}) == [
        "/dev/nvidia-caps/nvidia-cap21: 237:21, and should be 238:21"
    ]
    assert number_differences(good, {"nvidia-uvm": 510}, {"/dev/nvidia0": 0}) == [
        "/dev/nvidia-uvm: 508:0, and should be 510:0"
    ]


def test_checks_of_doctor_are_used_as_they_are() -> None:
    names = [check.name for check in NODE_CHECKS]
    known = {check.name: check for check in INSIDE}
    reused: list[Callable[..., Any]] = [check.find for check in NODE_CHECKS if check.name in known]
    assert len(names) == len(set(names))
    assert len(reused) == 12
    assert {"plugin", "runtime-cdi"}.isdisjoint(names)
