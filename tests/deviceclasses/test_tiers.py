"""The tiers of whole GPUs and of shares match what they are for, on every machine, and fail for no device."""

import re
from typing import Any

import pytest

from driver.claims.opaque import decode_for
from tests.deviceclasses.published_nodes import of_machine, profile_of, selectable
from tests.deviceclasses.shipped_classes import ALL, matches
from tests.gpus import GpuConfig, known_machines

TIER = {
    "a100-vgpu-guest": "",
    "a100-vgpu-guest-quad": "large",
    "a30-passthrough-guest": "medium",
    "a30-quad": "medium",
    "a30-vgpu-guest": "",
    "dgx-a100": "large",
    "dgx-a100-80gb": "large",
    "dgx1-v100": "medium",
    "dgx2": "medium",
    "gb200-tray": "large",
    "gh200": "large",
    "hgx-a100-quad": "large",
    "hgx-b200": "large",
    "hgx-h100": "large",
    "hgx-h100-shared-nvswitch": "large",
    "hgx-h200": "large",
    "l4-quad": "medium",
    "l40s-octo": "large",
    "l40s-vgpu-unlicensed": "medium",
    "passthrough-quad": "large",
    "rtx-pro-6000-octo": "large",
    "t4": "",
    "vgpu-and-passthrough": "",
    "vgpu-host-a100-mdev": "",
    "vgpu-host-l40s": "",
}
"""Machine -> the tier of its whole GPUs, if they are of any."""

CLASSES = {
    "whole": "gpu.nvidia.com gpu",
    "time-slicing share": "shared-timesliced gpu.shared",
    "held time-slicing share": "shared-timesliced gpu.shared shared-memory",
    "mps share": "shared-mps shared-memory",
    "passthrough": "vfio.gpu.nvidia.com",
    "vgpu": "vgpu.gpu.nvidia.com",
}
"""What a device is -> the classes that it is of, beside those of partitions and the tier of its size."""

PARTITION = re.compile(r"(\d+c\.)?\d+g\.\d+gb([+-][a-z.]+)?")


def test_every_machine_has_its_tier_here() -> None:
    assert set(TIER) == set(known_machines())


@pytest.mark.parametrize("machine", sorted(TIER))
def test_a_device_is_of_the_classes_of_its_form_and_of_no_other(machine: str) -> None:
    sizes = {name for name in ALL if name.startswith("mig-")}
    for device in of_machine(machine):
        form = profile_of(device)
        if device["attributes"].get("memoryIsolation") == {"string": "cgroup"}:
            form = form.replace("time-slicing share", "held time-slicing share")
        if " of " in form:
            expected = {"shared-mig"}
        elif form in CLASSES:
            expected = {
                *CLASSES[form].split(),
                *([TIER[machine]] if form == "whole" and TIER[machine] else ()),
            }
        else:
            assert PARTITION.fullmatch(form), form
            expected = {"mig.nvidia.com"}
        seen = selectable(device)
        matched = {name for name in set(ALL) - sizes if matches(name, seen)}
        assert matched == expected | {"monitoring"}, device["name"]


def test_all_forms_are_published_by_one_machine_or_another() -> None:
    machines = ("hgx-h100", "vgpu-host-l40s")
    forms = {profile_of(device) for machine in machines for device in of_machine(machine)}
    assert {*CLASSES} - {"held time-slicing share"} | {
        "1g.10gb",
        "mps share of 1g.10gb",
        "time-slicing share of 3g.40gb",
    } <= forms


@pytest.mark.parametrize(
    ("memory", "tiers"),
    [
        ("81559Mi", {"large"}),
        ("40Gi", {"large"}),
        ("40536Mi", {"large"}),
        ("36G", {"large"}),
        ("35999999999", {"medium"}),
        ("32Gi", {"medium"}),
        ("23028Mi", {"medium"}),
        ("20G", {"medium"}),
        ("19999999999", set()),
        ("16Gi", set()),
    ],
)
def test_the_tiers_of_whole_gpus_begin_at_36_and_at_20_gigabytes(memory: str, tiers: set[str]) -> None:
    device = {"attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": memory}}}

    assert {name for name in ("large", "medium") if matches(name, selectable(device))} == tiers


def gpu_config(parameters: Any) -> GpuConfig:
    config = decode_for(parameters, "GpuConfig", "a GPU")
    assert isinstance(config, GpuConfig)
    return config


def test_the_tiers_of_shares_carry_what_belongs_to_them() -> None:
    carried = {
        name: gpu_config(entry["opaque"]["parameters"])
        for name, one in ALL.items()
        for entry in one["spec"].get("config", ())
    }

    assert {name: (one.strategy, one.interval) for name, one in carried.items()} == {
        "shared-timesliced": ("TimeSlicing", "Default"),
        "gpu.shared": ("TimeSlicing", "Default"),
        "shared-mps": ("MPS", ""),
    }
