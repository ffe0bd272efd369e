"""Names are stable, within the API's and the kernel's limits, and never a way out of a folder."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.limits import is_dns_label
from driver.process.sockets import checked_socket_path
from kubeletplugin.kubelet.wire.names import cdi_device_name, cdi_qualified_name, is_safe_uid
from tests.clusters import registration_socket
from tests.gpus import ConfigError, PciAddress, gpu_device_name, parse_gpu_device_name

UID = "0f5b2a52-6b35-4d0e-9d4d-6d0d8d2f6c11"

addresses = st.builds(
    PciAddress, st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7)
)


@given(addresses)
def test_a_device_name_is_a_dns_label_and_reads_back(pci: PciAddress) -> None:
    name = gpu_device_name(pci)

    assert is_dns_label(name)
    assert parse_gpu_device_name(name) == pci


@given(addresses)
def test_a_pci_address_reads_back_also_in_the_form_of_nvml(pci: PciAddress) -> None:
    assert PciAddress.parse(str(pci)) == pci
    assert PciAddress.parse(f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.{pci.function}") == pci


@pytest.mark.parametrize(
    "name",
    ["gpu-0", "gpu-0000-8a-00-0\n", "gpu-0000-8a-00-0-shared", "GPU-0000-8a-00-0", "", "gpu-0000-8a-00-9"],
)
def test_other_names_are_no_whole_gpu(name: str) -> None:
    assert parse_gpu_device_name(name) is None


def test_a_cdi_device_is_named_by_claim_device_and_share() -> None:
    assert cdi_device_name(UID, "gpu-0000-8a-00-0") == f"{UID}-gpu-0000-8a-00-0"
    assert cdi_device_name(UID, "gpu-0000-8a-00-0", "s1") == f"{UID}-gpu-0000-8a-00-0-s1"
    assert cdi_qualified_name("x") == "k8s.gpu.nvidia.com/claim=x"


@pytest.mark.parametrize("uid", ["", "../x", "a/b", ".x", "a..b", "a\0", "a b", "x" * 64, "a\n", "\u0661"])
def test_a_hostile_uid_never_names_a_file(uid: str) -> None:
    assert not is_safe_uid(uid)


def test_a_uuid_may_name_a_file() -> None:
    assert is_safe_uid(UID)


@given(st.integers(1, 80))
def test_a_registration_socket_is_shortened_until_it_fits_or_refused(length: int) -> None:
    registry = Path("/") / ("r" * length)

    try:
        path = registration_socket(registry, "gpu.nvidia.com", UID)
    except ConfigError:
        assert length + len("/dra--reg.sock") + 22 >= 107
    else:
        assert len(bytes(path)) <= 107
        assert path.name.endswith("-reg.sock")


def test_a_socket_path_that_is_too_long_is_refused_with_the_numbers() -> None:
    with pytest.raises(ConfigError, match=r"has 120 bytes, a unix socket takes 107.*use a shorter folder"):
        checked_socket_path(Path("/" + "x" * 119))
