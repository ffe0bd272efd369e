"""What NVML says of how well a GPU is: values without any I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driver.nvml.health.values import FabricHealth, RecoveryAction, RemappedRows


@dataclass(frozen=True, slots=True)
class Condition:
    """The answers of NVML; None for each that was not given.

    An answer that tells of a fault counts on while its call fails. ``recovery_action`` is ``none`` only where
    this very look heard so. ``unsupported`` names the calls that this board cannot answer with this NVIDIA
    driver, so that nobody asks again.
    """

    recovery_action: RecoveryAction | None = None
    rows: RemappedRows | None = None
    page_pending: bool | None = None
    unrepairable: bool | None = None
    fabric: FabricHealth | None = None
    unsupported: frozenset[str] = frozenset()


NOT_ASKED = Condition()


def unheard(condition: Condition) -> Condition:
    """What counts of an earlier look when this one hears nothing: that all was well then says nothing."""
    action = condition.recovery_action
    return replace(condition, recovery_action=None if action == "none" else action)
