"""Reads the field ``shared`` of a rule: how a GPU or its partitions are shared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from driver.devices.gpu_policy import GpuPolicy, SharedOffer
from driver.devices.sharing import MOST_MPS_CLIENTS, Strategy
from driver.kinds.kind import PolicyField
from kubernetes_rules.quantity import parse_quantity

# More than is ever needed. The number is part of the device's name, which has room for four digits.
MOST_SHARES = 1000

# MPS limits the memory of a client in whole MiB, so no step is finer.
MIB = 2**20

_MOST: dict[Strategy, int] = {"TimeSlicing": MOST_SHARES, "MPS": MOST_MPS_CLIENTS}
_FIELDS = ("strategy", "shares", "memory", "fractional")
_STEP = {"type": ["string", "integer"]}
_ONE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["strategy"],
    "properties": {
        "strategy": {"enum": [*_MOST]},
        "shares": {"type": "integer", "minimum": 2, "maximum": MOST_SHARES},
        "memory": {
            "type": "object",
            "additionalProperties": False,
            "required": ["step"],
            "properties": {"step": _STEP},
        },
        "fractional": {"type": "boolean"},
    },
    "anyOf": [{"required": ["shares"]}, {"required": ["memory"]}],
}
SCHEMA: dict[str, Any] = {
    "description": "How the GPU, or its partitions, is shared.",
    "anyOf": [_ONE, {"type": "array", "minItems": 1, "maxItems": len(_MOST), "items": _ONE}],
}
"""The JSON schema of the field."""


def read_shared(value: Any, path: str, errors: list[str]) -> tuple[SharedOffer, ...]:
    """The meaning of the field's parsed ``value``: one offer, or two with different strategies.

    Each mistake is added to ``errors`` with its path, and an offer with a mistake is left out.
    """
    if not isinstance(value, list):
        offer = _offer(value, path, errors)
        return () if offer is None else (offer,)
    if not 1 <= len(value) <= len(_MOST):
        errors.append(f"{path}: must be a mapping, or a list of one or two")
        return ()
    offers = [_offer(one, f"{path}[{index}]", errors) for index, one in enumerate(value)]
    strategies = [offer.strategy for offer in offers if offer is not None]
    if len(set(strategies)) < len(strategies):
        errors.append(f"{path}: must not have one strategy twice")
    return tuple(offer for offer in offers if offer is not None)


def _offer(value: Any, path: str, errors: list[str]) -> SharedOffer | None:
    """One offer; None if anything is wrong with it."""
    if not isinstance(value, dict):
        errors.append(f"{path}: must be a mapping with strategy and with shares, memory or both")
        return None
    before = len(errors)
    errors.extend(f"{path}.{key}: unknown field" for key in value if key not in _FIELDS)
    strategy = next((one for one in _MOST if one == value.get("strategy")), None)
    if strategy is None:
        errors.append(f"{path}.strategy: must be one of {', '.join(_MOST)}")
    if not {"shares", "memory"} & value.keys():
        errors.append(f"{path}: must have shares, memory or both")
    shares = _shares(value, strategy, path, errors)
    step_bytes = _step(value["memory"], f"{path}.memory", errors) if "memory" in value else None
    fractional = value.get("fractional", False)
    if not isinstance(fractional, bool):
        errors.append(f"{path}.fractional: must be true or false")
    if strategy is None or len(errors) > before:
        return None
    return SharedOffer(strategy, shares, step_bytes, fractional)


def _shares(value: dict[Any, Any], strategy: Strategy | None, path: str, errors: list[str]) -> int | None:
    if "shares" not in value:
        return None
    shares = value["shares"]
    most = _MOST[strategy] if strategy else MOST_SHARES
    if isinstance(shares, bool) or not isinstance(shares, int) or not 2 <= shares <= most:
        why = ", since an MPS server has no more clients" if strategy == "MPS" else ""
        errors.append(f"{path}.shares: must be a number from 2 to {most}{why}")
        return None
    return shares


def _step(value: Any, path: str, errors: list[str]) -> int | None:
    if not isinstance(value, dict):
        errors.append(f"{path}: must be a mapping with step")
        return None
    errors.extend(f"{path}.{key}: unknown field" for key in value if key != "step")
    step = value.get("step")
    try:
        # YAML reads an amount without a suffix as a number.
        amount = parse_quantity(str(step))
    except ValueError:
        errors.append(f"{path}.step: must be an amount of memory such as 5Gi")
        return None
    if amount < MIB or amount % MIB:
        errors.append(f"{path}.step: must be a multiple of 1Mi")
        return None
    return int(amount)


class SharedField(PolicyField):
    """The field ``shared``."""

    name = "shared"
    schema = SCHEMA

    read = staticmethod(read_shared)

    def implied_form(self, policy: GpuPolicy) -> str | None:
        """Only the shared GPU, unless the rule offers dynamic partitions, which are beside the whole GPU."""
        return "whole" if policy.mig.mode == "dynamic" else "shared"

    def contradictions(self, policy: GpuPolicy) -> Iterator[str]:
        """Forms that exclude sharing."""
        if policy.form == "shared" and policy.mig.mode == "dynamic":
            yield (
                "offer: must not be shared with dynamic MIG: set whole to offer the GPU whole, shared and "
                "in partitions, or partitions to share the partitions"
            )
        if policy.form == "shared" and policy.mig.mode == "layout":
            yield "offer: must not be shared with a layout: set partitions to share the partitions"
        if policy.form in ("whole", "partitions") and any(one.fractional for one in policy.shared):
            yield (
                "shared: fractional devices offer the whole GPU and its shares in one device, so set "
                "offer: shared, without partitions"
            )
