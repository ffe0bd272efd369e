"""What a shared device is and what a claim took of it: its strategy, its measures, as values and as names.

A shared device is one that several claims can be given at once (KEP-5075, allowMultipleAllocations).
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
    """How a device is shared; its name says all of it, so that a change makes another device.

    ``shares`` is how many equal shares there are, None where memory alone measures. ``memory`` is whether
    claims ask for memory; else a share has its part of it. ``fractional``: a claim that asks for no
    amount takes all of the device, and then has it as if it were not shared.
    """

    strategy: Strategy
    shares: int | None = None
    memory: bool = False
    fractional: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """What one allocation took of a shared device; None for what does not measure it."""

    shares: int | None = None
    memory_bytes: int | None = None


def shared_suffix(form: SharedForm) -> str:
    """The end of the name of a device that is shared so: ``-ts-4``, ``-mps-4-mem``, ``-mps-frac-mem``."""
    fractional = "-frac" if form.fractional else ""
    shares = "" if form.shares is None else f"-{form.shares}"
    return f"-{_WORDS[form.strategy]}{fractional}{shares}{'-mem' if form.memory else ''}"


def split_shared_suffix(name: str) -> tuple[str, SharedForm | None]:
    """The name of the device that is shared, and how; the name itself and None where it is not shared."""
    match = _SUFFIX.search(name)
    if match is None or not (match["shares"] or match["memory"]):
        return name, None
    strategy: Strategy = "MPS" if match["strategy"] == "mps" else "TimeSlicing"
    shares = int(match["shares"]) if match["shares"] else None
    form = SharedForm(strategy, shares, match["memory"] is not None, match["fractional"] is not None)
    return name[: match.start()], form


def read_share(form: SharedForm, consumed: Mapping[str, str], device: str, domain: str) -> Share:
    """What an allocation took, from its ``consumedCapacity``; names may have the driver's domain.

    Raises ClaimRefused where an amount that measures the device is missing, or is no whole positive
    number within the shares that there are.
    """
    amounts = {name.removeprefix(f"{domain}/"): text for name, text in consumed.items()}
    shares = _amount(amounts, SHARES, device) if form.shares is not None else None
    if form.shares is not None and shares is not None and shares > form.shares:
        raise ClaimRefused(
            f"the claim was given {shares} shares of {device}, which has {form.shares}",
            "delete the pod, so that it is scheduled anew",
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
        wrong = f"is {amounts[name]}, which is no whole number above zero"
    raise ClaimRefused(
        f"the allocation's consumedCapacity {name} of {device} {wrong}",
        "delete the pod, so that it is scheduled anew",
    )
