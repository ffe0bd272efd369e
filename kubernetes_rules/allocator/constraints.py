"""Constraints between the devices of a claim: an attribute that all share, or that is distinct in each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kubernetes_rules.allocator.published import Device, Json
from kubernetes_rules.errors import AllocationFailed

_TYPES = ("string", "int", "bool", "version")


@dataclass(slots=True)
class Constraint:
    """A constraint with the values of the devices chosen so far; ``requests`` empty means every request."""

    attribute: str
    distinct: bool
    requests: frozenset[str]
    values: list[tuple[str, Any]] = field(default_factory=list)

    def applies_to(self, names: tuple[str, str]) -> bool:
        """``names`` are those of a request alone and with its subrequest."""
        return not self.requests or names[0] in self.requests or names[1] in self.requests

    def allows(self, device: Device) -> bool:
        """Whether the device can be chosen beside those that are; it needs the attribute."""
        attribute = attribute_of(device, self.attribute)
        if attribute is None:
            return False
        if not self.values:
            return True
        value = _value_of(attribute)
        if value[0] not in _TYPES:
            return False
        return value not in self.values if self.distinct else value == self.values[0]

    @property
    def state(self) -> frozenset[tuple[str, Any]]:
        """What decides which devices are still allowed."""
        return frozenset(self.values if self.distinct else self.values[:1])

    def add(self, device: Device) -> None:
        """Choose a device that is allowed."""
        attribute = attribute_of(device, self.attribute)
        if attribute is not None:
            self.values.append(_value_of(attribute))

    def remove(self) -> None:
        """Give up the device that was chosen last."""
        self.values.pop()


def read_constraints(claim: str, stored: Any) -> list[Constraint]:
    """The constraints of a claim; raises AllocationFailed for a kind that is not known."""
    found = []
    for index, one in enumerate(stored or ()):
        distinct = one.get("matchAttribute") is None
        attribute = one.get("distinctAttribute" if distinct else "matchAttribute")
        if attribute is None:
            raise AllocationFailed(
                f"claim {claim}, constraint #{index}: it is of a kind that is not known",
                "use matchAttribute or distinctAttribute",
            )
        found.append(Constraint(attribute, distinct, frozenset(one.get("requests") or ())))
    return found


def attribute_of(device: Device, name: str) -> Json | None:
    """The attribute of a fully qualified name; the driver's own may be published without its domain."""
    found: Json | None = device.attributes.get(name)
    if found is None:
        domain, slash, bare = name.partition("/")
        if slash and domain == device.id.driver:
            found = device.attributes.get(bare)
    return found


def _value_of(attribute: Json) -> tuple[str, Any]:
    """The type and the value; versions are compared as they are written (semver 2.0.0 is minimal)."""
    for kind in _TYPES:
        if attribute.get(kind) is not None:
            return kind, attribute[kind]
    return "", None
