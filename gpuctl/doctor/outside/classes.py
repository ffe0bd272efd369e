"""Checks DeviceClasses: whether there are any, whether their selectors work, and what they select."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from driver.devices.memory_limits import FIRST_DRIVER, LIMITS_WITHHELD, MEMORY_LIMITS
from driver.devices.names import DRIVER_NAME
from gpuctl.cli.cluster import Object
from gpuctl.cli.output import some_of
from gpuctl.cli.unread import items_of
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, warn
from gpuctl.doctor.outside.publishing import current_devices
from gpuctl.doctor.outside.seen import ClusterSeen, name_of
from gpuctl.fleet.devices import attribute
from gpuctl.fleet.holders import request_classes
from kubernetes_rules.cel.selector import SelectorDevice, SelectorFailed, SelectorInvalid, compile_selector

_SHOWN = 6
_TOLD_APART = ("type", "profile", "sharing", "productName", "memoryIsolation", "memoryLimits")


def own_classes(classes: tuple[Object, ...]) -> list[Object]:
    """The classes that name this driver, in a selector or in a configuration."""
    return [one for one in classes if DRIVER_NAME in str(one.get("spec"))]


@check
def _classes(seen: ClusterSeen) -> Finding:
    """The DeviceClasses of this driver, and their selectors, evaluated on every published form of device.

    Fails if there are none, or if a selector does not compile, or fails on a device.
    """
    own = own_classes(require(seen.classes))
    if not own:
        return fail(
            f"no DeviceClass selects devices of {DRIVER_NAME}, so claims cannot ask for them",
            "apply the classes that come with the driver",
        )
    forms = _forms(seen)
    wrong = [f"{name_of(one)}: {why}" for one in own if (why := _fault(one, forms))]
    if wrong:
        return fail(
            f"selectors of {counted(len(wrong), 'class', 'classes')} fail, so pods that ask for them wait",
            "correct the expressions: a selector must check that an attribute exists before it reads it; if "
            "a device publishes what it should not, cordon its node and see who publishes there",
            wrong,
        )
    words = counted(len(forms), "form")
    return ok(f"selectors of {counted(len(own), 'class', 'classes')} work for {words} of published devices")


def _fault(device_class: Object, devices: Iterable[tuple[str, SelectorDevice]]) -> str:
    """Why a selector of the class cannot be used, and on which device; empty if all can."""
    # A selector without an answer for one device fails the whole allocation, whatever else would fit.
    for expression in _expressions(device_class):
        where = ""
        try:
            selector = compile_selector(expression)
            for name, device in devices:
                where = f"{name}: "
                selector.matches(device)
        except (SelectorInvalid, SelectorFailed) as error:
            return f"{where}{error.what}"
    return ""


@check
def _class_devices(seen: ClusterSeen) -> Finding:
    """The classes that select no published device, and why nodes do not enforce memory limits.

    Never fails; warns if claims wait for such a class.
    """
    own = require(own_classes(require(seen.classes)), "this driver has no class")
    require(seen.slices)
    devices = require(distinct_devices(seen), "nothing is published")
    # The driver ships classes for all forms, and no cluster offers all: that matters only if a claim waits.
    empty = {name_of(one): one for one in own if not selects(one, devices)}
    asked = sorted(set(empty) & set(_waited_for(seen)))
    insisting = [name for name in asked or empty if _insists(empty[name])]
    reasons = list(_reasons(seen)) if insisting else []
    if asked:
        way_out = "`gpuctl explain claim NAME` says why; the node configuration decides what nodes offer"
        if insisting:
            way_out += (
                f"; memory limits take driver R{FIRST_DRIVER} or newer, cgroup v2 and shared GPUs, or MPS"
            )
        words = f"claims wait for {counted(len(asked), 'class', 'classes')} without a published device"
        return warn(words, way_out, asked + reasons)
    if empty:
        return ok(
            f"{len(own) - len(empty)} of {counted(len(own), 'class', 'classes')} select published devices; "
            f"no node offers devices for {some_of(sorted(empty), _SHOWN)}, and no claim asks for one",
            sorted(empty) + reasons,
        )
    return ok(f"each of {counted(len(own), 'class', 'classes')} selects published devices")


def _waited_for(seen: ClusterSeen) -> Iterator[str]:
    """The classes that claims without an allocation ask for."""
    for claim in items_of(seen.claims):
        if not (claim.get("status") or {}).get("allocation"):
            yield from (name for _, name in request_classes(claim))


def selects(device_class: Object, devices: list[SelectorDevice]) -> bool:
    """Whether any of the devices is of the class, or a selector of the class does not work."""
    try:
        selectors = [compile_selector(expression) for expression in _expressions(device_class)]
        return any(all(one.matches(device) for one in selectors) for device in devices)
    except (SelectorInvalid, SelectorFailed):
        return True  # the check of classes reports it


def _expressions(device_class: Object) -> Iterator[str]:
    """The CEL expressions of a class."""
    for one in (device_class.get("spec") or {}).get("selectors") or ():
        if one.get("cel"):
            yield str(one["cel"]["expression"])


def _insists(device_class: Object) -> bool:
    """Whether a class requires enforced memory limits."""
    words = ("memoryIsolation", MEMORY_LIMITS)
    return any(word in one for one in _expressions(device_class) for word in words)


def _reasons(seen: ClusterSeen) -> Iterator[str]:
    """For each node that publishes no device with memory limits, the reasons."""
    whys: dict[str, dict[str, None]] = {}
    for node, device in current_devices(seen):
        whys.setdefault(node, {})[_reason(device)] = None
    for node, found in sorted(whys.items()):
        if "" not in found:
            yield f"{node}: {'; '.join(found)}"


def _reason(device: Object) -> str:
    """Why a device has no memory limits; empty if it has them."""
    if attribute(device, MEMORY_LIMITS) is not None:
        return ""
    withheld = attribute(device, LIMITS_WITHHELD)
    if withheld is not None:
        return str(withheld)
    version = str(attribute(device, "driverVersion") or "")
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) < FIRST_DRIVER:
        return f"driver {version} is older than R{FIRST_DRIVER}"
    return "the reason is not published"


def distinct_devices(seen: ClusterSeen) -> list[SelectorDevice]:
    """One published device for each kind of device that classes can distinguish."""
    return [device for _, device in _forms(seen)]


def _forms(seen: ClusterSeen) -> list[tuple[str, SelectorDevice]]:
    # Evaluating CEL for each device of a large cluster would take too long.
    forms: dict[Any, tuple[str, Object]] = {}
    for node, device in current_devices(seen):
        attributes = device.get("attributes") or {}
        shared = bool(device.get("allowMultipleAllocations"))
        capacity = device.get("capacity") or {}
        form = (
            *(str(attributes.get(name)) for name in _TOLD_APART),
            # A name with a value of another type is what makes a selector fail.
            *(shared, tuple(sorted((name, *value) for name, value in attributes.items()))),
            tuple(map(str, sorted(capacity.items()))),
        )
        forms.setdefault(form, (f"{node}/{device['name']}", device))
    return [
        (
            name,
            SelectorDevice(
                DRIVER_NAME,
                device.get("attributes") or {},
                device.get("capacity") or {},
                allow_multiple_allocations=bool(device.get("allowMultipleAllocations")),
            ),
        )
        for name, device in forms.values()
    ]


CLASS_CHECKS = (_classes, _class_devices)
