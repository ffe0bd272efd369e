"""PCI bus and device nodes agree with NVML, or each difference is named."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.doctor.check import Result, run_checks
from gpuctl.verify.checks.kernel_checks import bus_differences, number_differences
from gpuctl.verify.checks.node_checks import NODE_CHECKS
from gpuctl.verify.subject import Subject
from tests.examples import is_long
from tests.gpuctl.verify.subjects import built_machine, subject_of
from tests.gpus import PciView, known_machines
from tests.plugin import DeviceNode

UNLICENSED = "l40s-vgpu-unlicensed"
OF_EACH_KIND = ("hgx-h100", "t4", "a30-vgpu-guest", "vgpu-and-passthrough", "gb200-tray")


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    """A node with eight H100."""
    return subject_of(tmp_path, built_machine(tmp_path, "hgx-h100"))


def result(subject: Subject, name: str) -> Result:
    (found,) = run_checks("node", [check for check in NODE_CHECKS if check.name == name], subject)
    return found


@pytest.mark.parametrize("name", known_machines() if is_long() else OF_EACH_KIND)
def test_nothing_differs_on(name: str, tmp_path: Path) -> None:
    found = {
        one.check: one.status
        for one in run_checks("node", NODE_CHECKS, subject_of(tmp_path, built_machine(tmp_path, name)))
    }
    failed = [check for check, status in found.items() if status == "fail"]
    assert failed == (["vgpu-license"] if name == UNLICENSED else [])
    assert found["pci-bus"] == "ok"


def test_a_gpu_that_nvml_alone_cannot_read_is_a_difference(tmp_path: Path) -> None:
    machine = built_machine(tmp_path, "t4")
    machine.fail("uuid", gpu=0)

    bus = result(subject_of(tmp_path, machine), "pci-bus")

    address = min(machine.state.gpus)
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
    bus = result(subject, "pci-bus")
    assert bus.status == "ok"
    assert bus.details == (f"GPU {lacking}: NVML lacks it; its kernel driver is nvidia",)


def test_what_the_bus_shows_differently_is_named(subject: Subject) -> None:
    gpu = subject.gpus[0]
    function = subject.seen.kernel.pci.function(gpu.pci)
    assert function is not None

    def of(**fields: Any) -> list[str]:
        changed = replace(function, **fields)
        return list(bus_differences(gpu, PciView((changed,) if changed.is_gpu else ()), changed))

    assert of() == []
    assert of(driver="vfio-pci") == [f"GPU {gpu.pci}: NVML lists it, and its kernel driver is vfio-pci"]
    assert of(numa_node=7) == [f"GPU {gpu.pci}: NUMA node: inventory 0, sysfs 7"]
    assert "class 0c03" in of(class_code=0x0C0330)[0]
    assert "nothing is at its address" in next(bus_differences(gpu, PciView(), None))


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
