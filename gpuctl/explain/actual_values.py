"""What devices have of the attributes and capacities that a selector asks for in vain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kubernetes_rules.allocator.published import Device
from kubernetes_rules.allocator.selector_results import selector_device

_ASKED = re.compile(r"""device\.(attributes|capacity)\[['"]([^'"]+)['"]\]\.(\w+)""")
_SHOWN = 3


def has_instead(expression: str, devices: Iterable[Device]) -> str:
    """The values of the devices that the text of an expression is about; "" where they have none of them."""
    values: dict[str, dict[str, None]] = {}
    for device in devices:
        seen = selector_device(device)
        for table, domain, name in _ASKED.findall(expression):
            kept = seen.attributes if table == "attributes" else seen.capacity
            value = kept.get(f"{domain}/{name}") or (kept.get(name) if domain == seen.driver else None)
            if value:
                values.setdefault(name, {})[_text(value)] = None
    return "; ".join(f"{name} is {_listed(list(found))}" for name, found in values.items())


def _text(value: Mapping[str, Any]) -> str:
    """A value of an attribute, ``{"string": "H100"}``, or of a capacity, ``{"value": "80Gi"}``."""
    one = value.get("value") or next(iter(value.values()))
    return str(one).lower() if isinstance(one, bool) else str(one)


def _listed(values: list[str]) -> str:
    if len(values) > _SHOWN:
        return f"{', '.join(values[:_SHOWN])} and {len(values) - _SHOWN} more"
    return " or ".join(values)
