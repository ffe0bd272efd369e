"""A device's name tells its kind, and each kind reads the names that it gives and no others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.devices.limits import is_dns_label
from driver.devices.names import shared_device_name
from driver.kinds.partition.kind import STATIC
from driver.kinds.partition.names import static_device_name
from driver.kinds.registry import KINDS
from tests.gpus import (
    PartitionName,
    PciAddress,
    Placement,
    Region,
    SharedForm,
    gpu_device_name,
    parse_partition_name,
    partition_device_name,
    unshared_name,
)

addresses = st.builds(
    PciAddress, st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7)
)
shared_forms = st.builds(
    SharedForm, st.sampled_from(["TimeSlicing", "MPS"]), st.integers(2, 1000), st.booleans(), st.booleans()
)
profiles = st.sampled_from(
    ["1g.10gb", "1g.10gb+me", "7g.80gb", "2g.48gb+me.all", "4g.96gb+gfx", "1g.24gb-me"]
)


@given(addresses, shared_forms, profiles, st.integers(0, 15), st.booleans())
def test_the_name_of_a_shared_device_says_what_is_shared_and_how(
    pci: PciAddress, form: SharedForm, profile: str, start: int, static: bool
) -> None:
    name = static_device_name if static else partition_device_name
    for base in (gpu_device_name(pci), name(pci, profile, start)):
        unshared = KINDS.parse(base)
        assert unshared is not None

        shared = shared_device_name(base, form)

        assert is_dns_label(shared)
        assert unshared_name(shared) == base == unshared_name(base)
        assert KINDS.parse(shared) == replace(unshared, device=shared, shared=form)


def test_the_part_of_a_static_instance_is_shared_under_a_name_of_its_own() -> None:
    pci = PciAddress.parse("0000:8a:00.0")
    base = static_device_name(pci, "1c.3g.40gb", 4, 2)

    assert shared_device_name(base, SharedForm("TimeSlicing", 4)) == f"{base}-ts-4"
    name = KINDS.parse(f"{base}-ts-4")
    assert name is not None
    assert (name.unshared, name.kind, name.shared) == (base, STATIC, SharedForm("TimeSlicing", 4))
    assert parse_partition_name(base) == PartitionName(pci, "1c-3g-40gb", 4, True, 2)


@pytest.mark.parametrize(
    "name",
    [
        "gpu-0000-8a-00-0-mig-1c-3g-40gb-4-2",
        "gpu-0000-8a-00-0-static-1c-3g-40gb-4",
        "gpu-0000-8a-00-0-static-3g-40gb-4-2",
        "gpu-0000-8a-00-0-mig-1g-10gb-6\n",
        "gpu-0000-8a-00-0-mig-9g-10gb-6",
        "other",
        "",
    ],
)
def test_a_name_that_the_driver_never_gives_is_of_no_kind(name: str) -> None:
    assert KINDS.parse(name) is None


def test_parts_of_one_gpu_instance_do_not_exclude_each_other_and_all_else_on_its_slices_does() -> None:
    pci = PciAddress.parse("0000:8a:00.0")
    here = Placement(4, 4)

    def part(start: int) -> Region:
        return PartitionName(pci, "1c-3g-40gb", 4, True, start).at(here)

    assert not part(0).overlaps(part(2))
    assert part(0).overlaps(part(0))
    assert part(0).overlaps(PartitionName(pci, "1g-10gb", 6).region)
    assert part(0).overlaps(Region(pci))
    assert not part(0).overlaps(PartitionName(pci, "1g-10gb", 3).region)
    assert not part(0).overlaps(Region(PciAddress.parse("0000:8b:00.0")))
