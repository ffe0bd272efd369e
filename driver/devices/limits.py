"""Finds what the API server would refuse in a device or counter set, before the slice is sent.

The limits are those of resource.k8s.io/v1 (pkg/apis/resource/validation in Kubernetes 1.34 to 1.37). One bad
device would make the server refuse its whole slice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from driver.devices.device import AttributeValue, CounterSet, Device, RequestPolicy, Taint, Version

MAX_ATTRIBUTES_AND_CAPACITIES = 32
MAX_VALUE_BYTES = 64
MAX_TAINTS = 16
MAX_COUNTERS = 32
MAX_CONSUMED_SETS = 2

_MAX_LABEL = 63
_MAX_DOMAIN = 63
_MAX_IDENTIFIER = 32
_MAX_PREFIX = 253
_INT64 = range(-(2**63), 2**63)

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LABEL_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_NUMBER = r"(0|[1-9]\d*)"
_PRERELEASE_PART = r"(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(-{_PRERELEASE_PART}(\.{_PRERELEASE_PART})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
"""The grammar of semver.org 2.0.0."""

_EFFECTS = ("None", "NoSchedule", "NoExecute")


def device_faults(device: Device, driver: str) -> tuple[str, ...]:
    """Why the API server would refuse the device, or why it is ambiguous; empty if nothing is wrong.

    ``driver`` is the domain of attribute names without one. Each reason names the field.
    """
    return tuple(_faults(device, driver))


def _faults(device: Device, driver: str) -> Iterator[str]:
    if not is_dns_label(device.name):
        yield f"name {device.name!r} is not a DNS label of at most {_MAX_LABEL} characters"
    entries = len(device.attributes) + len(device.capacity)
    if entries > MAX_ATTRIBUTES_AND_CAPACITIES:
        yield f"it has {entries} attributes and capacities, more than {MAX_ATTRIBUTES_AND_CAPACITIES}"
    yield from _name_faults("attribute", tuple(device.attributes), driver)
    yield from _name_faults("capacity", tuple(device.capacity), driver)
    for name, value in device.attributes.items():
        yield from _value_faults(name, value)
    for name, amount in device.capacity.items():
        if amount not in _INT64:
            yield f"capacity {name!r} does not fit in 64 bits"
    yield from _policy_faults(device)
    if len(device.taints) > MAX_TAINTS:
        yield f"it has {len(device.taints)} taints, more than {MAX_TAINTS}"
    for taint in device.taints:
        yield from _taint_faults(taint)


def _policy_faults(device: Device) -> Iterator[str]:
    for name in device.capacity:
        # Without a policy the first share would consume the whole capacity.
        if device.policies and name not in device.policies:
            yield f"capacity {name!r} of a shared device has no request policy"
    for name, policy in device.policies.items():
        amount = device.capacity.get(name)
        if amount is None:
            yield f"there is a request policy for capacity {name!r}, which the device does not have"
        else:
            where = f"request policy of capacity {name!r}"
            yield from (f"{where}: {fault}" for fault in _request_faults(policy, amount))


def _request_faults(policy: RequestPolicy, amount: int) -> Iterator[str]:
    if not 0 <= policy.default <= amount:
        yield f"default {policy.default} is not within 0 to {amount}"
    step, minimum = policy.step, policy.minimum
    if step is None:
        return
    if step <= 0:
        yield f"step {step} is not above 0"
        return
    if not 0 <= minimum <= policy.default:
        yield f"minimum {minimum} is not within 0 to the default {policy.default}"
    if minimum + step > amount:
        yield f"minimum {minimum} and step {step} together are more than {amount}"
    if (policy.default - minimum) % step:
        yield f"default {policy.default} is not the minimum {minimum} plus a multiple of the step {step}"


def counter_set_faults(counter_set: CounterSet) -> tuple[str, ...]:
    """Why the API server would refuse the counter set; empty if nothing is wrong."""
    name = counter_set.name
    wrong = () if is_dns_label(name) else (f"counter set name {name!r} is not a DNS label",)
    return (*wrong, *_counter_faults(f"counter set {name!r}", counter_set.counters))


def consumption_faults(device: Device, counter_sets: Mapping[str, CounterSet]) -> tuple[str, ...]:
    """Why the device's consumption of counters is invalid; empty if it is valid.

    ``counter_sets`` are those of the pool, by name.
    """
    if device.consumes and not device.counter_set:
        return ("counters are consumed without a counter set",)
    consumed = device.consumed_sets
    if len(consumed) > MAX_CONSUMED_SETS:
        return (f"counters of {len(consumed)} sets are consumed, more than {MAX_CONSUMED_SETS}",)
    return tuple(
        fault for name, taken in consumed.items() for fault in _consumed_faults(name, taken, counter_sets)
    )


def _consumed_faults(
    name: str, taken: Mapping[str, int], counter_sets: Mapping[str, CounterSet]
) -> Iterator[str]:
    found = counter_sets.get(name)
    # The API server stores a reference to a missing counter set, but the scheduler then refuses the pool.
    if found is None:
        yield f"counter set {name!r} does not exist"
        return
    yield from _counter_faults("consumption", taken)
    for counter in taken:
        if counter not in found.counters:
            yield f"counter {counter!r} is not in counter set {name!r}"


def _counter_faults(where: str, counters: Mapping[str, int]) -> Iterator[str]:
    if not 1 <= len(counters) <= MAX_COUNTERS:
        yield f"{where}: {len(counters)} counters, not 1 to {MAX_COUNTERS}"
    for name, amount in counters.items():
        if not is_dns_label(name):
            yield f"{where}: counter name {name!r} is not a DNS label"
        if amount not in _INT64:
            yield f"{where}: counter {name!r} does not fit in 64 bits"


@lru_cache(maxsize=256)  # the devices of a kind have the same names
def _name_faults(kind: str, names: tuple[str, ...], driver: str) -> tuple[str, ...]:
    found = []
    for name in names:
        if not _is_qualified_name(name):
            found.append(f"{kind} {name!r} is not a C identifier, alone or after a domain and a slash")
        # The server stores both, and CEL then sees only one of them, in no fixed order.
        elif "/" not in name and f"{driver}/{name}" in names:
            found.append(f"{kind} {name!r} appears twice, with and without the driver's domain")
    return tuple(found)


@lru_cache(maxsize=2048)  # the same values are checked each time
def _value_faults(name: str, value: AttributeValue) -> tuple[str, ...]:
    found = []
    text = value.text if isinstance(value, Version) else value
    if isinstance(value, Version) and not is_semantic_version(value.text):
        found.append(f"attribute {name!r}: {value.text!r} is not a semantic version")
    # The limit is in bytes, not characters.
    if isinstance(text, str) and len(text.encode()) > MAX_VALUE_BYTES:
        found.append(f"attribute {name!r} has more than {MAX_VALUE_BYTES} bytes")
    if isinstance(value, int) and value not in _INT64:
        found.append(f"attribute {name!r} does not fit in 64 bits")
    return tuple(found)


def _taint_faults(taint: Taint) -> Iterator[str]:
    if not _is_label_key(taint.key):
        yield f"taint key {taint.key!r} is not a label name"
    if not is_label_value(taint.value):
        yield f"taint value {taint.value!r} is not a label value"
    if taint.effect not in _EFFECTS:
        yield f"taint effect {taint.effect!r} is unknown"


def is_semantic_version(text: str) -> bool:
    """Whether the text is a version as semver.org 2.0.0 defines it."""
    return _SEMVER.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Whether the text can be the value of a label, and so of a taint; an empty text can."""
    return not text or (len(text) <= _MAX_LABEL and _LABEL_PART.fullmatch(text) is not None)


def is_dns_label(text: str) -> bool:
    """Whether the text is a DNS label (RFC 1123) of at most 63 characters."""
    return len(text) <= _MAX_LABEL and _DNS_LABEL.fullmatch(text) is not None


def is_pool_name(text: str) -> bool:
    """Whether the text is one or more DNS subdomains joined by slashes, at most 253 characters in all."""
    parts = text.split("/")
    return len(text) <= _MAX_PREFIX and all(_DNS_SUBDOMAIN.fullmatch(part) for part in parts)


def _is_qualified_name(text: str) -> bool:
    domain, slash, identifier = text.rpartition("/")
    if slash and not (len(domain) <= _MAX_DOMAIN and _DNS_SUBDOMAIN.fullmatch(domain)):
        return False
    return len(identifier) <= _MAX_IDENTIFIER and _IDENTIFIER.fullmatch(identifier) is not None


def _is_label_key(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= _MAX_PREFIX and _DNS_SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= _MAX_LABEL and _LABEL_PART.fullmatch(name) is not None
