"""A device that a process has open is not waited for without end, and nothing is lost by that."""

import os
import signal
from pathlib import Path

import pytest

from driver.hardware.pci_view import read_function
from kubeletplugin.devices.host.kernel import RealKernel
from kubeletplugin.devices.vfio.function_files import Deadlines
from kubeletplugin.devices.vfio.users import FunctionInDoubt, FunctionInUse, FunctionUsers
from tests.guest.inside.vfio.devices import (
    BEHIND,
    DEVICES,
    HOST,
    OWN_DRIVERS,
    SYSFS,
    WITHOUT_DRIVER,
    Journal,
    at,
    binder,
    driver,
    group_node,
    opened_by_vfio,
    override,
)

SOON = Deadlines(override=4, unbind=4)


def test_a_device_of_a_running_machine_is_not_taken_and_its_process_is_named(journal: Journal) -> None:
    bound = binder().bind(at(BEHIND), [at(BEHIND)], {}, journal.note)
    with opened_by_vfio(BEHIND) as machine:
        with pytest.raises(FunctionInUse, match=rf"in use: .*process {machine.pid}\)"):
            binder().restore(bound, journal.note)
        assert driver(BEHIND) == "vfio-pci"
    binder().restore(journal.record, journal.note)

    assert driver(BEHIND) == OWN_DRIVERS[BEHIND]


def test_a_node_by_another_name_is_known(journal: Journal, tmp_path: Path) -> None:
    bound = binder().bind(at(BEHIND), [at(BEHIND)], {}, journal.note)
    number = os.stat(group_node(BEHIND)).st_rdev  # noqa: PTH116 - its number alone is asked for
    other = tmp_path / "innocent"
    os.mknod(other, 0o20600, number)
    function = read_function(SYSFS, at(BEHIND))
    assert function is not None
    assert FunctionUsers(HOST, SYSFS)(function) == ()
    with opened_by_vfio(BEHIND, other) as machine:
        assert [user.pid for user in FunctionUsers(HOST, SYSFS)(function)] == [machine.pid]
    binder().restore(bound, journal.note)


def test_a_driver_that_does_not_let_go_leaves_the_function_in_doubt_until_it_does(journal: Journal) -> None:
    """So is it with the NVIDIA driver, which waits for those who use a GPU."""
    kernel = RealKernel(HOST, SYSFS)
    bound = binder(kernel).bind(at(BEHIND), [at(BEHIND)], {}, journal.note)
    nobody = binder(kernel, lambda _: (), SOON)
    with opened_by_vfio(BEHIND):
        with pytest.raises(FunctionInDoubt, match=f"{BEHIND} is unknown: .*taking it from vfio-pci"):
            nobody.restore(bound, journal.note)
        assert driver(BEHIND) == "", "the kernel drops the link first"
        assert driver(WITHOUT_DRIVER) == "", "the others are given back meanwhile"
        for call in (_restore, _bind):
            with pytest.raises(FunctionInDoubt):
                call(nobody, journal)
        # Another process knows nothing of the write that is under way, and is not caught by it either.
        with pytest.raises(FunctionInDoubt, match="an earlier change of it"):
            _restore(binder(None, lambda _: (), SOON), journal)
    _restore(binder(kernel), journal)

    assert (driver(BEHIND), override(BEHIND), journal.record) == (OWN_DRIVERS[BEHIND], "(null)", {})


def test_a_child_that_is_killed_in_the_kernel_changes_nothing_of_that(journal: Journal) -> None:
    kernel = RealKernel(HOST, SYSFS)
    bound = binder(kernel).bind(at(BEHIND), [at(BEHIND)], {}, journal.note)
    with opened_by_vfio(BEHIND):
        with pytest.raises(FunctionInDoubt):
            binder(kernel, lambda _: (), SOON).restore(bound, journal.note)
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            if b"kernel_child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
        with pytest.raises(FunctionInDoubt):
            _restore(binder(None, lambda _: (), SOON), journal)
    _restore(binder(), journal)

    assert (driver(BEHIND), override(BEHIND)) == (OWN_DRIVERS[BEHIND], "(null)")


def test_a_group_that_is_open_without_its_devices_is_given_back(journal: Journal) -> None:
    bound = binder().bind(at(BEHIND), [at(BEHIND)], {}, journal.note)
    opened = os.open(group_node(BEHIND), os.O_RDWR)
    binder().restore(bound, journal.note)  # this process does not count as a user of its own
    os.close(opened)

    assert driver(BEHIND) == OWN_DRIVERS[BEHIND]
    assert not (DEVICES / BEHIND / "vfio-dev").exists()


def _restore(one: object, journal: Journal) -> None:
    one.restore(journal.record, journal.note)  # type: ignore[attr-defined] # a binder


def _bind(one: object, journal: Journal) -> None:
    one.bind(at(BEHIND), [at(BEHIND)], journal.record, journal.note)  # type: ignore[attr-defined] # likewise
