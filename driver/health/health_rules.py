"""The part of the node configuration about health: an admin's table of XIDs, and what ends pods that run.

health:
  xids: {"94": needs-reset, "31": ignore}
  evict: [needs-reset, needs-reboot, lost]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from driver.health.verdict import Effect, Kind
from driver.health.xids import MOST_XID, XID_CLASSES, XidClass, meaning_of

EVICTING: tuple[Kind, ...] = (
    "lost",
    "unresponsive",
    "needs-reset",
    "needs-reboot",
    "memory",
    "failing",
    "fabric",
)
"""The kinds of faults for which an admin can have pods evicted.

Not among them: XIDs, which a program may cause, and what only says that a GPU cannot be monitored or
licensed.
"""


@dataclass(frozen=True, slots=True)
class HealthRules:
    """An admin's changes of the defaults: classes of XIDs, and the kinds of faults that evict pods."""

    xids: Mapping[int, XidClass] = field(default_factory=dict)
    evict: frozenset[Kind] = frozenset()

    def class_of(self, xid: int | None, reported: XidClass | None) -> XidClass:
        """How bad a fault is, by the admin's table, else the NVIDIA driver's report, else our own table."""
        # A fault with neither an XID nor a class says nothing about the GPU.
        if xid is None:
            return reported or "informational"
        return self.xids.get(xid) or reported or meaning_of(xid).xid_class

    def effect(self, kind: Kind, effect: Effect) -> Effect:
        """The effect of a fault of this kind: NoExecute instead of NoSchedule if it evicts pods."""
        return "NoExecute" if effect == "NoSchedule" and kind in self.evict else effect


SCHEMA: dict[str, Any] = {
    "description": "How faults of GPUs are judged: the classes of XIDs, and the faults that evict pods.",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "xids": {
            "description": "XID code to class; other codes have their class from the driver's own table.",
            "type": "object",
            "propertyNames": {"pattern": "^[1-9][0-9]{0,4}$"},
            "additionalProperties": {"enum": list(XID_CLASSES)},
        },
        "evict": {
            "description": "Faults for which pods are evicted (NoExecute); for all others they stay.",
            "type": "array",
            "items": {"enum": list(EVICTING)},
        },
    },
}
"""The JSON schema of the field."""


def read_health_rules(value: Any, path: str, errors: list[str]) -> HealthRules:
    """The rules in the parsed field; each mistake is added to ``errors`` and begins with its path."""
    if not isinstance(value, dict):
        errors.append(f"{path}: must be a mapping with xids, evict or both")
        return HealthRules()
    errors.extend(f"{path}.{key}: unknown field" for key in value if key not in ("xids", "evict"))
    return HealthRules(
        _xids(value.get("xids", {}), f"{path}.xids", errors),
        _evict(value.get("evict", []), f"{path}.evict", errors),
    )


def _xids(listed: Any, path: str, errors: list[str]) -> dict[int, XidClass]:
    if not isinstance(listed, dict):
        errors.append(f"{path}: must be a mapping from XID codes to classes")
        return {}
    found: dict[int, XidClass] = {}
    for key, word in listed.items():
        code = _code(key)
        if code is None:
            errors.append(f"{path}.{key}: must be the code of an XID, such as 94")
        elif code in found:
            errors.append(f"{path}.{key}: appears twice")
        elif not isinstance(word, str) or word not in XID_CLASSES:
            errors.append(f"{path}.{key}: must be one of {', '.join(XID_CLASSES)}")
        else:
            found[code] = word
    return found


def _code(key: Any) -> int | None:
    """The XID that a key means, None if it is none."""
    # YAML makes an int of a number without quotes, and a bool of a bare yes or no.
    if isinstance(key, str) and key.isascii() and key.isdigit():
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, int):
        return None
    return key if 0 < key <= MOST_XID else None


def _evict(listed: Any, path: str, errors: list[str]) -> frozenset[Kind]:
    if not isinstance(listed, list):
        errors.append(f"{path}: must be a list")
        return frozenset()
    wrong = [word for word in listed if word not in EVICTING]
    errors.extend(f"{path}: {word!r} must be one of {', '.join(EVICTING)}" for word in wrong)
    return frozenset(word for word in EVICTING if word in listed)
