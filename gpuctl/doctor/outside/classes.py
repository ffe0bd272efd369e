"""Checks DeviceClasses: whether there are any, whether their selectors work, and what they select."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from driver.devices.names import DRIVER_NAME
from gpuctl.cli.cluster import Object
from gpuctl.cli.output import some_of
from gpuctl.cli.unread import items_of
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.outside.publishing import current_devices
from gpuctl.doctor.outside.seen import ClusterSeen, name_of
from gpuctl.fleet.holders import request_classes
from kubernetes_rules.cel.selector import SelectorDevice, SelectorFailed, SelectorInvalid, compile_selector

_SHOWN = 6
_TOLD_APART = ("type", "profile", "sharing", "productName", "memoryIsolation", "memoryLimits")


def own_classes(classes: tuple[Object, ...]) -> list[Object]:
    """The classes that name this driver, in a selector or in a configuration."""
    return [one for one in classes if DRIVER_NAME in str(one.get("spec"))]


@check(
    "classes",
    "the DeviceClasses of this driver",
    "there are none",
)
def _present(seen: ClusterSeen) -> Finding:
    own = own_classes(require(seen.classes))
    if not own:
        return fail(
            f"no DeviceClass selects devices of {DRIVER_NAME}, so claims cannot ask for them",
            "apply the classes that come with the driver",
        )
    return ok(f"{counted(len(own), 'class', 'classes')} of this driver")


@check(
    "class-selectors",
    "the selectors of classes, evaluated on every published form of device",
    "one does not compile, or fails on a device",
)
def _selectors(seen: ClusterSeen) -> Finding:
    own = own_classes(require(seen.classes))
    if not own:
        return skipped("this driver has no class")
    devices = _forms(seen)
    wrong = [f"{name_of(one)}: {why}" for one in own if (why := _fault(one, devices))]
    if wrong:
        return fail(
            f"selectors of {counted(len(wrong), 'class', 'classes')} fail, so pods that ask for them wait",
            "correct the expressions: a selector must check that an attribute exists before it reads it; if "
            "a device publishes what it should not, cordon its node and see who publishes there",
            wrong,
        )
    return ok(f"selectors compile and work for {counted(len(devices), 'form')} of published devices")


def _fault(device_class: Object, devices: Iterable[tuple[str, SelectorDevice]]) -> str:
    """Why a selector of the class cannot be used, and on which device; empty if all can."""
    # A selector without an answer for one device fails the whole allocation, whatever else would fit.
    for expression in expressions(device_class):
        where = ""
        try:
            selector = compile_selector(expression)
            for name, device in devices:
                where = f"{name}: "
                selector.matches(device)
        except (SelectorInvalid, SelectorFailed) as error:
            return f"{where}{error.what}"
    return ""


@check(
    "class-devices",
    "which classes select a published device",
    "never; warns if claims wait for a class that selects none",
)
def _used(seen: ClusterSeen) -> Finding:
    own = own_classes(require(seen.classes))
    require(seen.slices)
    devices = distinct_devices(seen)
    if not own or not devices:
        return skipped("this driver has no class" if not own else "nothing is published")
    empty = sorted(name_of(one) for one in own if not selects(one, devices))
    # The driver ships classes for all forms, and no cluster offers all: that matters only if a claim waits.
    asked = sorted(set(empty) & set(waited_for(seen)))
    if asked:
        return warn(
            f"claims wait for {counted(len(asked), 'class', 'classes')} without a published device",
            "`gpuctl explain claim NAME` says why; the node configuration decides what nodes offer",
            asked,
        )
    if empty:
        return ok(
            f"{len(own) - len(empty)} of {counted(len(own), 'class', 'classes')} select published "
            f"devices; no node offers devices for {some_of(empty, _SHOWN)}, and no claim asks for "
            "one",
            empty,
        )
    return ok(f"each of {counted(len(own), 'class', 'classes')} selects published devices")


def waited_for(seen: ClusterSeen) -> Iterator[str]:
    """The classes that claims without an allocation ask for."""
    for claim in items_of(seen.claims):
        if not (claim.get("status") or {}).get("allocation"):
            yield from (name for _, name in request_classes(claim))


def selects(device_class: Object, devices: list[SelectorDevice]) -> bool:
    """Whether any of the devices is of the class, or a selector of the class does not work."""
    try:
        selectors = [compile_selector(expression) for expression in expressions(device_class)]
        return any(all(one.matches(device) for one in selectors) for device in devices)
    except (SelectorInvalid, SelectorFailed):
        return True  # the check of selectors reports it


def expressions(device_class: Object) -> Iterator[str]:
    """The CEL expressions of a class."""
    for one in (device_class.get("spec") or {}).get("selectors") or ():
        if one.get("cel"):
            yield str(one["cel"]["expression"])


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


CLASS_CHECKS = (_present, _selectors, _used)
