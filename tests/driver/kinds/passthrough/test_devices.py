"""What a GPU for a virtual machine says of itself is what sysfs and NVML tell, under NVIDIA's names."""

import re

import pytest

from driver.kinds.passthrough.kind import parse_passthrough_name, passthrough_device_name
from tests.driver.kinds.passthrough.seen_nodes import FIRST, GIB, SECOND, function, gpu, node, offered
from tests.driver.mig_machines import rules
from tests.gpus import ConfigError, PciAddress

ALONE = "offer: passthrough"


def test_all_that_is_known_is_said() -> None:
    found = node(function(FIRST, numa_node=1, pcie_root="pci0000:15"), iommufd=True)

    [device] = offered(found, ALONE).devices

    assert device.name == "gpu-0000-1b-00-0-vfio"
    assert device.attributes == {
        "type": "vfio",
        # uuid.NewSHA1(uuid.NameSpaceDNS, "0000:1b:00.0") of github.com/google/uuid
        "uuid": "90d1ede6-4660-56ab-bea3-b9875fe7e5eb",
        "vendorID": "0x10de",
        "deviceID": "0x26b9",
        "productName": "NVIDIA L40S",
        "architecture": "Ada",
        "iommuFDEnabled": True,
        "iommuGroup": 0x1B,
        "gpuCount": 1,
        "virtualFunction": False,
        "sharing": "none",
        "memoryIsolation": "hardware",
        "numaNode": 1,
        "resource.kubernetes.io/numaNode": 1,
        "resource.kubernetes.io/pciBusID": "0000:1b:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:15",
    }
    assert device.capacity == {"addressableMemory": 512 * 2**20, "memory": 45 * GIB}
    assert (device.counter_set, device.consumes) == ("", {})


def test_a_gpu_that_nvml_does_not_have_says_what_sysfs_tells() -> None:
    [device] = offered(node(function(FIRST, driver="vfio-pci")), ALONE).devices
    assert device.attributes["productName"] == "NVIDIA L40S"
    assert {"architecture", "brand", "numaNode"}.isdisjoint(device.attributes)
    assert "memory" not in device.capacity


def test_a_name_that_the_device_id_does_not_tell_is_absent() -> None:
    several = function(FIRST, driver="vfio-pci", device_id=0x20B0)
    unknown = function(SECOND, driver="vfio-pci", device_id=0x0001, addressable_bytes=None)
    for device in offered(node(several, unknown), ALONE).devices:
        assert "productName" not in device.attributes
    assert offered(node(unknown), ALONE).devices[0].capacity == {}


def test_gpus_that_go_together_say_what_they_have_in_common_and_have_it_all() -> None:
    first = function(FIRST, iommu_group=7, numa_node=0)
    second = function(SECOND, iommu_group=7, numa_node=1, device_id=0x26B5)
    told = (gpu(FIRST), gpu(SECOND, product_name="NVIDIA L40"))

    [device] = offered(node(first, second, told=told), ALONE).devices

    assert device.name == "gpu-0000-1b-00-0-0000-43-00-0-vfio"
    assert [region.pci for region in device.regions] == [FIRST, SECOND]
    assert device.attributes["gpuCount"] == 2
    assert device.attributes["architecture"] == "Ada"
    assert {"productName", "deviceID", "numaNode"}.isdisjoint(device.attributes)
    assert device.capacity == {"addressableMemory": 1024 * 2**20, "memory": 90 * GIB}


GPUS = [PciAddress.parse(f"0000:{bus:02x}:00.0") for bus in (0x07, 0x0F, 0x47, 0x4E, 0x87)]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_name_is_read_back(count: int) -> None:
    far = PciAddress.parse("10000:01:00.0")
    for pcis in (GPUS[:count], [far]):
        name = passthrough_device_name(pcis)
        assert name is not None
        assert parse_passthrough_name(name) == tuple(pcis)


def test_more_gpus_than_a_name_holds_have_none() -> None:
    assert passthrough_device_name(GPUS) is None


@pytest.mark.parametrize(
    "name",
    [
        "gpu-0000-07-00-0",
        "gpu-0000-07-00-0-vfio\n",
        "gpu-0000-07-00-8-vfio",
        "gpu-0000-0F-00-0-vfio",
        "gpu-0000-0f-00-0-0000-07-00-0-vfio",
        "gpu-0000-07-00-0-0000-07-00-0-vfio",
        "gpu--vfio",
        "",
    ],
)
def test_what_no_node_publishes_is_no_name(name: str) -> None:
    assert parse_passthrough_name(name) is None


@pytest.mark.parametrize(
    ("rule", "form", "beside"),
    [
        ("offer: passthrough", "passthrough", None),
        ("offer: passthrough, passthrough: true", "passthrough", True),
        ("passthrough: true", "whole", True),
        ("passthrough: false", "whole", False),
        ("passthrough: true, shared: {strategy: TimeSlicing, shares: 2}", "shared", True),
        ("passthrough: true, mig: {layout: all-1g}", "partitions", True),
    ],
)
def test_a_rule_offers_passthrough_alone_or_beside_the_other_forms(
    rule: str, form: str, beside: bool | None
) -> None:
    [found] = rules(rule).rules
    assert found.policy.form == form
    assert found.policy.more.get("passthrough") is beside


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("passthrough: 1", "rules[0].passthrough: must be true or false"),
        ("passthrough: 'yes'", "rules[0].passthrough: must be true or false"),
        ("offer: passthrough, passthrough: false", "rules[0].passthrough: must not be false"),
        ("offer: passthrough, mig: dynamic", "rules[0].offer: must not be passthrough for partitions"),
        ("offer: passthrough, mig: {layout: all-1g}", "must not be passthrough for partitions"),
        (
            "offer: passthrough, shared: {strategy: TimeSlicing, shares: 2}",
            "rules[0].offer: must not be passthrough with shared",
        ),
    ],
)
def test_what_does_not_go_together_is_told_with_its_path(rule: str, error: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(error)):
        rules(rule)
