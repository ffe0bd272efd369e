"""A real kernel's groups go to vfio and come back."""

import pytest

from driver.errors import ClaimBlocked, NodeIncomplete
from driver.hardware.pci_view import iommu_group_of, read_function
from kubeletplugin.devices.host.kernel import RealKernel
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.modules import VfioAlias, best_module, read_aliases
from kubeletplugin.devices.vfio.users import FunctionNotMoved
from tests.guest.inside.vfio.devices import (
    BEHIND,
    BRIDGE,
    DEVICES,
    HOST,
    NETWORK,
    NVME,
    NVME_VIRTUAL,
    OWN_DRIVERS,
    RANDOM,
    SYSFS,
    UNGUARDED,
    USB,
    WITHOUT_DRIVER,
    Journal,
    at,
    binder,
    driver,
    group_node,
    is_viable,
    override,
    refused,
)

LONG = 60.0
ALL_IN_ONE = (NETWORK, RANDOM, USB)


def test_the_functions_of_one_device_go_together(journal: Journal) -> None:
    bound = binder().bind(at(NETWORK), list(map(at, ALL_IN_ONE)), {}, journal.note)

    assert [driver(address) for address in ALL_IN_ONE] == ["vfio-pci"] * 3
    assert is_viable(NETWORK)
    assert bound == journal.record
    assert binder().restore(bound, journal.note) == {}
    assert [driver(address) for address in ALL_IN_ONE] == ["e1000", "virtio-pci", "xhci_hcd"]
    assert not group_node(NETWORK).exists()


def test_a_group_in_which_another_function_works_for_the_node_is_left_to_it(journal: Journal) -> None:
    with pytest.raises(
        ClaimBlocked, match=rf"{RANDOM} \(virtio-pci\), {USB} \(xhci_hcd\), which the node would lose"
    ):
        binder().bind(at(NETWORK), [at(NETWORK)], {}, journal.note)

    assert [driver(address) for address in ALL_IN_ONE] == ["e1000", "virtio-pci", "xhci_hcd"]
    assert (journal.steps, journal.record) == ([], {})


def test_a_function_that_nobody_works_with_goes_with_the_group_and_stays_so(journal: Journal) -> None:
    kernel = RealKernel(HOST, SYSFS)
    idle = (RANDOM, USB)
    for address in idle:
        kernel.write(SYSFS / f"bus/pci/drivers/{OWN_DRIVERS[address]}/unbind", address, LONG)
    bound = binder().bind(at(NETWORK), [at(NETWORK)], {}, journal.note)
    assert [driver(address) for address in ALL_IN_ONE] == ["vfio-pci"] * 3
    binder().restore(bound, journal.note)

    assert [driver(address) for address in ALL_IN_ONE] == ["e1000", "", ""]
    for address in idle:
        kernel.write(SYSFS / "bus/pci/drivers_probe", address, LONG)


def test_devices_behind_a_bridge_go_together_and_the_bridge_stays(journal: Journal) -> None:
    group = iommu_group_of(SYSFS, at(BEHIND))
    assert group is not None
    assert [str(one.pci) for one in group.functions] == [BRIDGE, BEHIND, WITHOUT_DRIVER]
    bridge = driver(BRIDGE)
    bound = binder().bind(at(BEHIND), [at(BEHIND)], {}, journal.note)

    assert (driver(BEHIND), driver(WITHOUT_DRIVER), driver(BRIDGE)) == ("vfio-pci", "vfio-pci", bridge)
    assert is_viable(BEHIND)
    binder().restore(bound, journal.note)
    assert (driver(BEHIND), driver(WITHOUT_DRIVER), driver(BRIDGE)) == ("e1000", "", bridge)


def test_overrides_are_as_they_were(journal: Journal) -> None:
    kernel = RealKernel(HOST, SYSFS)
    before = {BEHIND: "e1000", WITHOUT_DRIVER: "pci-stub"}
    for address, name in before.items():
        kernel.write(DEVICES / address / "driver_override", name, LONG)
    bound = binder().bind(at(BEHIND), [at(BEHIND)], {}, journal.note)
    assert [override(address) for address in before] == ["vfio-pci"] * 2
    binder().restore(bound, journal.note)

    assert {address: override(address) for address in before} == before
    for address in before:
        kernel.write(DEVICES / address / "driver_override", "\n", LONG)


def test_what_somebody_else_moved_meanwhile_is_left(journal: Journal) -> None:
    kernel = RealKernel(HOST, SYSFS)
    bound = binder().bind(at(BEHIND), [at(BEHIND)], {}, journal.note)
    kernel.load_module("pci-stub", LONG)
    kernel.write(DEVICES / WITHOUT_DRIVER / "driver_override", "pci-stub", LONG)
    kernel.write(SYSFS / "bus/pci/drivers/vfio-pci/unbind", WITHOUT_DRIVER, LONG)
    kernel.write(SYSFS / "bus/pci/drivers_probe", WITHOUT_DRIVER, LONG)
    binder().restore(bound, journal.note)

    assert (driver(BEHIND), driver(WITHOUT_DRIVER), override(WITHOUT_DRIVER)) == (
        "e1000",
        "pci-stub",
        "pci-stub",
    )
    kernel.write(SYSFS / "bus/pci/drivers/pci-stub/unbind", WITHOUT_DRIVER, LONG)
    kernel.write(DEVICES / WITHOUT_DRIVER / "driver_override", "\n", LONG)


def test_a_driver_that_refuses_its_function_has_all_undone(journal: Journal, release: str) -> None:
    modalias = (DEVICES / WITHOUT_DRIVER / "modalias").read_text().strip()
    # A network driver knows nothing to do with it, and says so in its probe.
    aliases = (VfioAlias(modalias, "e1000"), *read_aliases(HOST, release))
    wrong = GroupBinder(RealKernel(HOST, SYSFS), SYSFS, lambda: aliases, lambda _: ())
    with pytest.raises(
        FunctionNotMoved, match=f"{WITHOUT_DRIVER}: it was offered to e1000, but it has no driver"
    ):
        wrong.bind(at(BEHIND), [at(BEHIND)], {}, journal.note)

    assert driver(BEHIND) == "e1000"
    assert journal.record == {}


def test_a_virtual_function_goes_alone_and_its_gpu_is_refused_then(journal: Journal) -> None:
    kernel = RealKernel(HOST, SYSFS)
    kernel.write(DEVICES / NVME / "sriov_numvfs", "2", LONG)
    try:
        with pytest.raises(ClaimBlocked, match=f"{NVME} has 2 virtual functions"):
            binder().bind(at(NVME), [at(NVME)], {}, journal.note)
        function = read_function(SYSFS, at(NVME_VIRTUAL))
        assert function is not None
        assert function.physical == at(NVME)
        bound = binder().bind(at(NVME_VIRTUAL), [at(NVME_VIRTUAL)], {}, journal.note)
        assert (driver(NVME_VIRTUAL), driver(NVME)) == ("vfio-pci", "nvme")
        assert is_viable(NVME_VIRTUAL)
        binder().restore(bound, journal.note)
        assert override(NVME_VIRTUAL) == "(null)"
        # The emulated one takes its driver back, which lets go of it later: it was never set up.
        assert driver(NVME_VIRTUAL) in {"nvme", ""}
    finally:
        kernel.write(DEVICES / NVME / "sriov_numvfs", "0", LONG)
    binder().restore(binder().bind(at(NVME), [at(NVME)], {}, journal.note), journal.note)


def test_without_an_iommu_nothing_is_begun(journal: Journal) -> None:
    with pytest.raises(NodeIncomplete, match=f"{UNGUARDED} is in no IOMMU group"):
        binder().bind(at(UNGUARDED), [at(UNGUARDED)], {}, journal.note)

    assert (journal.steps, override(UNGUARDED)) == ([], "(null)")


def test_the_kernel_names_vfio_pci_for_everything(release: str) -> None:
    aliases = read_aliases(HOST, release)
    modalias = (DEVICES / NETWORK / "modalias").read_text().strip()

    assert VfioAlias("pci:v*d*sv*sd*bc*sc*i*", "vfio_pci") in aliases
    assert best_module(aliases, modalias) == "vfio_pci"


def test_modules_are_loaded_by_their_names() -> None:
    kernel = RealKernel(HOST, SYSFS)
    kernel.load_module("vfio-pci", LONG)
    kernel.load_module("vfio_pci", LONG)

    assert (SYSFS / "module/vfio_pci/drivers/pci:vfio-pci").exists()
    assert refused(kernel.load_module, "no-such-module", LONG) == "ENOENT"


def test_a_module_that_is_part_of_the_kernel_is_there(release: str) -> None:
    built_in = (HOST / "lib/modules" / release / "modules.builtin").read_text().splitlines()
    without_folder = [name for line in built_in if not (SYSFS / "module" / (name := _module(line))).exists()]

    RealKernel(HOST, SYSFS).load_module(without_folder[0], LONG)


def test_every_device_has_the_driver_that_its_test_expects() -> None:
    assert {address: driver(address) for address in OWN_DRIVERS} == OWN_DRIVERS


def _module(line: str) -> str:
    return line.rpartition("/")[2].removesuffix(".ko").replace("-", "_")
