"""Writes to the pretend sysfs: what they ask of the kernel, and how the node is afterwards.

The kernel handles one write to a PCI function at a time, under the function's lock. A write that unbinds a
driver waits until no process uses the function any more, and all others wait behind it.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, replace

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.faults import KernelFault, after_hit
from fakegpu.sysfs import binding
from fakegpu.sysfs.binding import Node
from fakegpu.sysfs.state import Waiting
from fakegpu.sysfs.vgpu_rules import refused
from fakegpu.sysfs.vgpus import VgpuWrite, vgpu_write, with_vgpu_write

_DRIVER_FILE = re.compile(r"bus/pci/drivers/([^/]+)/(bind|unbind)\Z")
_PROBE_FILE = "bus/pci/drivers_probe"
_FUNCTION_FILE = re.compile(
    r"devices/.+/([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/"
    r"(driver_override|sriov_numvfs|sriov_drivers_autoprobe)\Z"
)


@dataclass(frozen=True, slots=True)
class Request:
    """One write: ``what`` it does to which function, the driver that its path names, and its text."""

    what: str
    pci: PciAddress
    driver: str
    text: str
    vgpu: VgpuWrite | None = None


def request_of(node: Node, path: str, text: str) -> Request:
    """What a write to a file asks for; ``path`` is below the root and without links.

    Raises OSError for a file that cannot be written, or a text that names no function.
    """
    if (vgpu := vgpu_write(path)) is not None:
        return Request("vgpu", vgpu.pci, "", text, vgpu)
    if match := _FUNCTION_FILE.match(path):
        return Request(match[2], PciAddress.parse(match[1]), "", text)
    match = _DRIVER_FILE.match(path)
    # All other files of sysfs are read-only here.
    if match is None and path != _PROBE_FILE:
        raise refused(errno.EACCES)
    # The files of a driver and of the bus take the address of a function, as echo writes it.
    name = text.removesuffix("\n")
    pci = next((pci for pci in node.kernel.functions if str(pci) == name), None)
    if pci is None:
        raise refused(errno.ENODEV)
    driver = match[1] if match else ""
    what = match[2] if match else "probe"
    if what == "unbind" and node.function(pci).driver != driver:
        raise refused(errno.ENODEV)
    return Request(what, pci, driver, text)


def perform(node: Node, request: Request) -> Node:
    """The node after a request; raises OSError if the kernel refuses it, StillInUse if it has to wait."""
    pci = request.pci
    if pci not in node.kernel.functions:
        raise refused(errno.ENODEV)
    if request.vgpu is not None:
        return with_vgpu_write(node, request.vgpu, request.text)
    if request.what == "bind":
        return binding.bind(node, request.driver, pci)
    if request.what == "probe":
        return binding.probe(node, pci)
    if request.what == "driver_override":
        return binding.set_override(node, pci, request.text)
    if request.what == "sriov_numvfs":
        return binding.set_virtual(node, pci, request.text)
    if request.what == "sriov_drivers_autoprobe":
        if request.text.strip() not in {"0", "1"}:
            raise refused(errno.EINVAL)
        return node.with_function(pci, replace(node.function(pci), autoprobe=request.text.strip() == "1"))
    # Another write may have unbound it while this one waited for the lock.
    if node.function(pci).driver is None:
        return node
    return binding.unbind(node, request.driver, pci)


def is_locked(node: Node, pci: PciAddress) -> bool:
    """Whether a write to the function is under way and has its lock, so that others wait behind it."""
    return any(one.pci == pci and one.error is None for one in node.kernel.waiting)


def needs_no_lock(node: Node, request: Request) -> bool:
    """Whether a request is answered without the function's lock: a probe of a function that has a driver.

    A driver that is still releasing the function counts.
    """
    return request.what == "probe" and node.function(request.pci).driver is not None


def read_waits(node: Node, path: str) -> bool:
    """Whether reading a file has to wait for the lock of its function."""
    match = _FUNCTION_FILE.match(path)
    return match is not None and is_locked(node, PciAddress.parse(match[1]))


def queued(node: Node, path: str, request: Request) -> tuple[Node, int]:
    """The node with one more write that waits, and the number of that write."""
    number = node.kernel.next_number
    waiting = (*node.kernel.waiting, Waiting(number, path, request.text, request.pci))
    return replace(node, kernel=replace(node.kernel, waiting=waiting, next_number=number + 1)), number


def settled(node: Node) -> Node:
    """The node after all waiting writes that can be done now; the same object if there are none."""
    # Each write that is done may let others go on, so the search starts again after each.
    begun = True
    while begun:
        begun = False
        locked: set[PciAddress] = set()
        for one in node.kernel.waiting:
            if one.error is not None or one.pci in locked:
                continue
            # Only the oldest write to a function has its lock.
            locked.add(one.pci)
            if fault_for(node, one.path, "hang") is not None:
                continue
            try:
                node = _with_result(_attempted(node, one), one, 0)
            except binding.StillInUse:
                continue
            except OSError as error:
                node = _with_result(node, one, error.errno or errno.EIO)
            begun = True
            break
    return node


def fault_for(node: Node, path: str, *kinds: str) -> KernelFault | None:
    """The oldest rule of these kinds that spoils a write to a file; None without one."""
    faults = node.kernel.faults
    return next((one for one in faults if one.words in path and one.kind in kinds), None)


def with_hit(node: Node, fault: KernelFault) -> Node:
    """The node after a rule has hit once; the last hit of a counted rule removes it."""
    if fault.times is None:
        return node
    return replace(node, kernel=replace(node.kernel, faults=after_hit(node.kernel.faults, fault.number)))


def _attempted(node: Node, waiting: Waiting) -> Node:
    # request_of refuses to unbind a driver that has released the function meanwhile; this write began before.
    match = _DRIVER_FILE.match(waiting.path)
    if match and match[2] == "unbind":
        return perform(node, Request("unbind", waiting.pci, match[1], waiting.text))
    return perform(node, request_of(node, waiting.path, waiting.text))


def _with_result(node: Node, waiting: Waiting, error: int) -> Node:
    """The node with a write done. Its result is kept unless the process that wrote has given up."""
    kept = []
    for one in node.kernel.waiting:
        if one.number != waiting.number:
            kept.append(one)
        elif not waiting.given_up:
            kept.append(replace(one, error=error))
    return replace(node, kernel=replace(node.kernel, waiting=tuple(kept)))
