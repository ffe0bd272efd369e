"""How a device is shared and what a claim takes of it, as values and as parts of device names.

A shared device is one that several claims can have at once (KEP-5075, allowMultipleAllocations).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from driver.errors import ClaimRefused
from kubernetes_rules.quantity import parse_quantity

Strategy = Literal["TimeSlicing", "MPS"]

SHARES, MEMORY = "shares", "memory"
"""The capacities by which a shared device is measured."""

MOST_MPS_CLIENTS, MOST_MPS_CLIENTS_BEFORE_VOLTA = 48, 16
"""How many clients an MPS server takes (CUDA up to 13.0; later ones take more)."""

_WORDS: dict[Strategy, str] = {"TimeSlicing": "ts", "MPS": "mps"}
_SUFFIX = re.compile(
    r"-(?P<strategy>ts|mps)(?P<fractional>-frac)?(?:-(?P<shares>[1-9][0-9]{0,3}))?(?P<memory>-mem)?\Z",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class SharedForm:
    """How a device is shared. All of it is in the device's name, so a change makes another device.

    ``shares`` is the number of equal shares, None if claims ask for memory alone. ``memory`` is whether
    claims ask for memory; otherwise each share has an equal part. ``fractional``: a claim that asks for no
    amount takes all of the device, and then has it as if it were not shared.
    """

    strategy: Strategy
    shares: int | None = None
    memory: bool = False
    fractional: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """What one allocation took of a shared device; None for a capacity that the device does not have."""

    shares: int | None = None
    memory_bytes: int | None = None


def shared_suffix(form: SharedForm) -> str:
    """The suffix of a shared device's name: ``-ts-4``, ``-mps-4-mem``, ``-mps-frac-mem``."""
    fractional = "-frac" if form.fractional else ""
    shares = "" if form.shares is None else f"-{form.shares}"
    return f"-{_WORDS[form.strategy]}{fractional}{shares}{'-mem' if form.memory else ''}"


def split_shared_suffix(name: str) -> tuple[str, SharedForm | None]:
    """The name without the suffix, and how the device is shared; the name itself and None if it is not."""
    match = _SUFFIX.search(name)
    if match is None or not (match["shares"] or match["memory"]):
        return name, None
    strategy: Strategy = "MPS" if match["strategy"] == "mps" else "TimeSlicing"
    shares = int(match["shares"]) if match["shares"] else None
    form = SharedForm(strategy, shares, match["memory"] is not None, match["fractional"] is not None)
    return name[: match.start()], form


def read_share(form: SharedForm, consumed: Mapping[str, str], device: str, domain: str) -> Share:
    """What an allocation took, read from its ``consumedCapacity``.

    Raises ClaimRefused if an amount of the device's capacities is missing or is not a positive whole number,
    or if there are not that many shares.
    """
    # Names may be written with or without the driver's domain.
    amounts = {name.removeprefix(f"{domain}/"): text for name, text in consumed.items()}
    shares = _amount(amounts, SHARES, device) if form.shares is not None else None
    if form.shares is not None and shares is not None and shares > form.shares:
        raise ClaimRefused(
            f"the claim was given {shares} shares of {device}, which has only {form.shares}",
            "delete the pod, so that it is scheduled again",
        )
    return Share(shares, _amount(amounts, MEMORY, device) if form.memory else None)


def _amount(amounts: Mapping[str, str], name: str, device: str) -> int:
    try:
        amount = parse_quantity(amounts[name])
    except KeyError:
        wrong = "is missing"
    except ValueError as error:
        wrong = f"cannot be read: {error}"
    else:
        if amount > 0 and amount == int(amount):
            return int(amount)
        wrong = f"is {amounts[name]}, which is not a whole number above zero"
    raise ClaimRefused(
        f"the allocation's consumedCapacity {name} of {device} {wrong}",
        "delete the pod, so that it is scheduled again",
    )
