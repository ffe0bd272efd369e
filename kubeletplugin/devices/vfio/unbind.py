"""Gives one function back to the driver that it had, from wherever it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from driver.process.log import get_logger
from kubeletplugin.devices.vfio.failures import FunctionNotMoved, in_use

if TYPE_CHECKING:
    from kubeletplugin.devices.vfio.function_files import FunctionFiles
    from kubeletplugin.devices.vfio.record import Done, FunctionRecord

_log = get_logger(__name__)


def give_back(one: FunctionRecord, files: FunctionFiles, done: Callable[[Done], None]) -> None:
    """Have the driver and the ``driver_override`` of before again; ``done`` is called before each change.

    A function that is gone, or that somebody else gave another driver, is left; an override that somebody
    else wrote decides which driver it gets. Where its former driver is not loaded any more it is left
    without one: a driver takes such functions by itself when it is loaded.

    Raises FunctionInUse while a process has it open, FunctionInDoubt, FunctionNotMoved.
    """
    if not files.is_there:
        _log.warning("function is gone, nothing to give back", function=one.pci)
        return
    override, driver = files.override(), files.driver()
    is_ours = override in {one.vfio, one.driver, one.override}
    if not is_ours:
        _log.warning("driver_override of somebody else is left", function=one.pci, override=override)
    if driver == one.vfio:
        if users := files.users():
            raise in_use(one.address, driver, users)
        done("giving-back")
        if is_ours:
            # It names the driver of before already: whatever binds meanwhile binds that.
            _set(files, one.driver or one.override)
        files.unbind(driver, one.driver)
        driver = ""
    if driver == "":
        done("giving-back")
        _bind_former(one, files, is_ours=is_ours)
    elif driver != one.driver:
        _log.warning("function bound by somebody else is left", function=one.pci, driver=driver)
    if is_ours:
        done("giving-back")
        _set(files, one.override)


def _bind_former(one: FunctionRecord, files: FunctionFiles, *, is_ours: bool) -> None:
    if not one.driver:
        return
    if not is_ours:
        files.offer("the driver that its driver_override names")
        return
    if not files.has_driver(one.driver):
        _log.warning("former driver is not loaded", function=one.pci, driver=one.driver)
        return
    _set(files, one.driver)
    try:
        files.probe(one.driver)
    except FunctionNotMoved:
        _set(files, one.override)  # whoever loads the driver anew then gets the function
        raise


def _set(files: FunctionFiles, name: str) -> None:
    if files.override() != name:
        files.set_override(name)
