"""The tiers of whole GPUs and of shares match what they are for, on every machine, and fail for no device."""

import re
from typing import Any

import pytest

from driver.claims.opaque import decode_for
from tests.deviceclasses.published_nodes import of_machine, profile_of, selectable
from tests.deviceclasses.shipped_classes import ALL, matches
from tests.gpus import GpuConfig, known_machines

TIERS = {
    "large": "a100-vgpu-guest-quad dgx-a100 dgx-a100-80gb gb200-tray gh200 hgx-a100-quad hgx-b200 hgx-h100"
    " hgx-h100-shared-nvswitch hgx-h200 l40s-octo passthrough-quad rtx-pro-6000-octo",
    "medium": "a30-passthrough-guest a30-quad dgx1-v100 dgx2 l4-quad l40s-vgpu-unlicensed",
    "": "a100-vgpu-guest a30-vgpu-guest t4 vgpu-and-passthrough vgpu-host-a100-mdev vgpu-host-l40s",
}
TIER = {machine: tier for tier, machines in TIERS.items() for machine in machines.split()}
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
            expected = {*CLASSES[form].split(), *(TIER[machine].split() if form == "whole" else ())}
        else:
            assert PARTITION.fullmatch(form), form
            expected = {"mig.nvidia.com"}
        seen = selectable(device)
        matched = {name for name in set(ALL) - sizes if matches(name, seen)}
        assert matched == expected | {"monitoring"}, device["name"]


def test_all_forms_are_published_by_one_machine_or_another() -> None:
    machines = ("hgx-h100", "vgpu-host-l40s")
    forms = {profile_of(device) for machine in machines for device in of_machine(machine)}
    of_partitions = {"1g.10gb", "mps share of 1g.10gb", "time-slicing share of 3g.40gb"}
    assert {*CLASSES} - {"held time-slicing share"} | of_partitions <= forms


@pytest.mark.parametrize(
    ("tier", "memories"),
    [
        ("large", "81559Mi 40Gi 40536Mi 36G"),
        ("medium", "35999999999 32Gi 23028Mi 20G"),
        ("", "19999999999 16Gi"),
    ],
)
def test_the_tiers_of_whole_gpus_begin_at_36_and_at_20_gigabytes(tier: str, memories: str) -> None:
    for memory in memories.split():
        device = {"attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": memory}}}
        assert [name for name in ("large", "medium") if matches(name, selectable(device))] == tier.split()


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
