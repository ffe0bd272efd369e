"""Which vGPUs of a host are offered, with what attributes, and why others are not."""

import re
from dataclasses import replace

import pytest

from driver.devices.limits import is_dns_label
from driver.kinds.forms import VGPU_MANAGER
from driver.kinds.vgpu.kind import NO_HOST, NO_INSTANCE, NO_PLACE, NO_SUCH_PROFILE, TOO_MANY, VGPUS_UNKNOWN
from driver.kinds.vgpu.names import VgpuName, parse_vgpu_name, profile_label, vgpu_device_name
from tests.driver.kinds.vgpu.hosts import A30, A100, L40S, alone, inventory, offers
from tests.driver.mig_machines import rules
from tests.gpus import ConfigError, Inventory, PciAddress


def reasons(found: Inventory, fields: str) -> list[str]:
    return [one.reason for one in offers(found, fields).withheld]


def vgpu(*profiles: str) -> str:
    return f"vgpu: {{profiles: [{', '.join(profiles)}]}}"


def test_a_vgpu_says_what_it_is_and_where() -> None:
    first = offers(inventory(L40S), vgpu("L40S-8Q")).devices[3]

    assert first.name == "gpu-0000-17-00-0-vgpu-l40s-8q-3"
    wanted = {
        "type": "vgpu",
        "profile": "L40S-8Q",
        "vgpuKind": "time-sliced",
        "vgpuSeries": "Q",
        "vgpuFramework": "vendor-vfio",
        "frameRateLimit": 60,
        "parentPCIBusID": "0000:17:00.0",
        "productName": "NVIDIA L40S",
        "resource.kubernetes.io/pciBusID": "0000:17:00.7",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "resource.kubernetes.io/numaNode": 0,
    }
    assert {name: first.attributes[name] for name in wanted} == wanted
    assert isinstance(first.attributes["iommuGroup"], int)
    assert "memoryIsolation" not in first.attributes
    assert first.capacity == {"memory": 8 * 2**30}


def test_a_mediated_device_has_no_address_by_which_its_gpu_could_be_passed_through() -> None:
    first = offers(inventory(A100), vgpu("A100-4C")).devices[0]

    assert first.attributes["vgpuFramework"] == "mdev"
    assert "resource.kubernetes.io/pciBusID" not in first.attributes


def test_a_vgpu_on_an_instance_has_memory_of_its_own() -> None:
    (first,) = offers(inventory(A100, 9), vgpu("A100-3-20C")).devices

    assert first.name == "gpu-0000-af-00-0-vgpu-a100-3-20c-0"
    assert (first.attributes["vgpuKind"], first.attributes["memoryIsolation"]) == ("mig-backed", "hardware")


def test_a_host_has_nothing_for_containers() -> None:
    for fields in ("offer: whole", "mig: dynamic", "shared: {strategy: TimeSlicing, shares: 4}"):
        found = offers(inventory(A100), fields)
        assert found.devices == ()
        assert {one.reason for one in found.withheld} == {VGPU_MANAGER}


def test_what_cannot_be_offered_has_a_reason() -> None:
    found = inventory(L40S)
    assert set(reasons(found, vgpu("A100-4C"))) == {NO_SUCH_PROFILE}
    assert reasons(alone(inventory(A100), 1), vgpu("A100-3-20C")) == [NO_INSTANCE]
    assert reasons(alone(inventory(A30), 0), vgpu("A30-12C")) == [NO_PLACE]
    (gpu,) = alone(found, 0).gpus
    assert gpu.vgpu is not None
    plain = replace(gpu, virtualization="none", vgpu=None)
    assert reasons(replace(found, gpus=(plain,)), vgpu("L40S-8Q")) == [NO_HOST]
    unanswered = replace(gpu, vgpu=replace(gpu.vgpu, types=None), unanswered=frozenset({"vgpu_types"}))
    assert reasons(replace(found, gpus=(unanswered,)), vgpu("L40S-8Q")) == [VGPUS_UNKNOWN]
    every = [one.profile for one in gpu.vgpu.types or ()]
    assert reasons(replace(found, gpus=(gpu,)), vgpu(*every)) == [TOO_MANY]


def test_profiles_may_stand_with_the_vendor_before_them() -> None:
    short, full = (offers(inventory(L40S), vgpu(name)) for name in ("L40S-8Q", "NVIDIA L40S-8Q"))

    assert short.devices == full.devices
    assert len(short.devices) == 12


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("vgpu: L40S-8Q", "rules[0].vgpu: must be a mapping with profiles"),
        ("vgpu: {profiles: []}", "rules[0].vgpu.profiles: must be a list of 1 to 64 profiles"),
        (
            "vgpu: {profiles: [L40S-8Q], virtualFunctions: 16}",
            "rules[0].vgpu.virtualFunctions: must be enabled, or absent",
        ),
        ("vgpu: {profiles: [8Q]}", "rules[0].vgpu.profiles[0]: must be a profile by NVIDIA's name"),
        ("vgpu: {profiles: [L40S-8Q, NVIDIA L40S-8Q]}", "rules[0].vgpu.profiles[1]: L40S-8Q appears more"),
        ("vgpu: {profiles: [L40S-8Q], numVFs: 4}", "rules[0].vgpu.numVFs: unknown field"),
        ("offer: vgpu", "rules[0].offer: must not be vgpu without the field vgpu"),
        ("offer: whole, vgpu: {profiles: [L40S-8Q]}", "rules[0].offer: must be vgpu with the field vgpu"),
        ("mig: dynamic, vgpu: {profiles: [L40S-8Q]}", "rules[0].vgpu: must not be used with mig or shared"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told(rule: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(wrong)):
        rules(rule)


GPU = PciAddress.parse("0000:17:00.0")
PROFILES = (
    "L40S-8Q",
    "A100-4C",
    "A100-1-5CME",
    "H100XM-1-10C",
    "RTX Pro 6000 Blackwell DC-1-24Q",
    "A30-4-24C",
)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_name_is_read_as_it_was_made(profile: str) -> None:
    name = vgpu_device_name(GPU, profile, 31)

    assert is_dns_label(name)
    assert parse_vgpu_name(name) == VgpuName(GPU, profile_label(profile), 31)


@pytest.mark.parametrize(
    "name",
    [
        "gpu-0000-17-00-0",
        "gpu-0000-17-00-0-vfio",
        "gpu-0000-17-00-0-vgpu",
        "gpu-0000-17-00-0-vgpu-l40s",
        "gpu-0000-17-00-0-vgpu-l40s-3",
        "gpu-0000-17-00-0-vgpu-l40s-8q-03",
        "gpu-0000-17-00-9-vgpu-l40s-8q-3",
        "gpu-0000-17-00-0-vgpu-l40s-8q-1000",
        "gpu-0000-17-00-0-mig-1g-10gb-6",
    ],
)
def test_other_names_mean_nothing(name: str) -> None:
    assert parse_vgpu_name(name) is None
