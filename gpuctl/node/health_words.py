"""Says what a node configuration makes of faults of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from driver.health.health_rules import EVICTING

if TYPE_CHECKING:
    from driver.health.health_rules import HealthRules


def health_lines(rules: HealthRules) -> Iterator[str]:
    """A line for what evicts pods, and one for XIDs that are judged otherwise; none for neither."""
    evicting = [word for word in EVICTING if word in rules.evict]
    if evicting:
        yield f"pods are evicted from a GPU that is tainted as {', '.join(evicting)}"
    if rules.xids:
        judged = ", ".join(f"{code} {word}" for code, word in sorted(rules.xids.items()))
        yield f"XIDs that are judged otherwise than by the driver's table: {judged}"
