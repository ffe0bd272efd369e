"""What the pretend kernel does with a write: which request it is, and the node after it."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, replace

from driver.nvml.pci_address import PciAddress
from fakegpu.sysfs.binding import Node, StillInUse, bind, probe, set_override, set_virtual, unbind
from fakegpu.sysfs.state import KernelFault, Waiting
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
    """One write: what is asked, of which function, and the driver that it names or the text."""

    what: str
    pci: PciAddress
    driver: str
    text: str
    vgpu: VgpuWrite | None = None


def request_of(node: Node, path: str, text: str) -> Request:
    """Read a write to a file, a path below the root without links; raises OSError where there is no such."""
    if (vgpu := vgpu_write(path)) is not None:
        return Request("vgpu", vgpu.pci, "", text, vgpu)
    if match := _FUNCTION_FILE.match(path):
        return Request(match[2], PciAddress.parse(match[1]), "", text)
    match = _DRIVER_FILE.match(path)
    if match is None and path != _PROBE_FILE:
        raise refused(errno.EACCES)  # a file that can only be read
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
    """The node after a request; raises OSError where the kernel refuses, StillInUse where it has to wait."""
    pci = request.pci
    if pci not in node.kernel.functions:
        raise refused(errno.ENODEV)
    if request.vgpu is not None:
        return with_vgpu_write(node, request.vgpu, request.text)
    if request.what == "bind":
        return bind(node, request.driver, pci)
    if request.what == "probe":
        return probe(node, pci)
    if request.what == "driver_override":
        return set_override(node, pci, request.text)
    if request.what == "sriov_numvfs":
        return set_virtual(node, pci, request.text)
    if request.what == "sriov_drivers_autoprobe":
        if request.text.strip() not in {"0", "1"}:
            raise refused(errno.EINVAL)
        return node.with_function(pci, replace(node.function(pci), autoprobe=request.text.strip() == "1"))
    if node.function(pci).driver is None:
        return node  # another write has unbound it while this one waited for the lock
    return unbind(node, request.driver, pci)


def is_locked(node: Node, pci: PciAddress) -> bool:
    """Whether a write to the function is under way, which has its lock: others wait behind it."""
    return any(one.pci == pci and one.error is None for one in node.kernel.waiting)


def answers_at_once(node: Node, request: Request) -> bool:
    """Whether a request needs no lock: a probe that finds a driver, and one that lets go still counts."""
    return request.what == "probe" and node.function(request.pci).driver is not None


def is_withheld(node: Node, path: str) -> bool:
    """Whether reading a file waits, because it needs the lock of the function."""
    match = _FUNCTION_FILE.match(path)
    return match is not None and is_locked(node, PciAddress.parse(match[1]))


def queued(node: Node, path: str, request: Request) -> tuple[Node, int]:
    """The node with one more write that waits, and its number."""
    number = node.kernel.next_number
    waiting = (*node.kernel.waiting, Waiting(number, path, request.text, request.pci))
    return replace(node, kernel=replace(node.kernel, waiting=waiting, next_number=number + 1)), number


def settled(node: Node) -> Node:
    """The node once every write that waits and can be done is done; the same object where there is none."""
    begun = True
    while begun:
        begun = False
        locked: set[PciAddress] = set()
        for one in node.kernel.waiting:
            if one.error is not None or one.pci in locked:
                continue
            locked.add(one.pci)
            if fault_for(node, one.path, "hang") is not None:
                continue
            try:
                node = _with_result(_attempted(node, one), one, 0)
            except StillInUse:
                continue
            except OSError as error:
                node = _with_result(node, one, error.errno or errno.EIO)
            begun = True
            break
    return node


def fault_for(node: Node, path: str, *kinds: str) -> KernelFault | None:
    """The oldest rule of these kinds that spoils a write to a file; any kind where none is named."""
    faults = node.kernel.faults
    return next((one for one in faults if one.words in path and (not kinds or one.kind in kinds)), None)


def without_use(node: Node, fault: KernelFault) -> Node:
    """The node after a counted rule has hit once; the last hit removes it."""
    if fault.times is None:
        return node
    kept = []
    for one in node.kernel.faults:
        if one.number != fault.number:
            kept.append(one)
        elif fault.times > 1:
            kept.append(replace(one, times=fault.times - 1))
    return replace(node, kernel=replace(node.kernel, faults=tuple(kept)))


def _attempted(node: Node, waiting: Waiting) -> Node:
    match = _DRIVER_FILE.match(waiting.path)
    if match and match[2] == "unbind":
        return perform(node, Request("unbind", waiting.pci, match[1], waiting.text))
    return perform(node, request_of(node, waiting.path, waiting.text))


def _with_result(node: Node, waiting: Waiting, error: int) -> Node:
    """The node with a write done: forgotten where nobody asks for its result."""
    kept = []
    for one in node.kernel.waiting:
        if one.number != waiting.number:
            kept.append(one)
        elif not waiting.given_up:
            kept.append(replace(one, error=error))
    return replace(node, kernel=replace(node.kernel, waiting=tuple(kept)))
