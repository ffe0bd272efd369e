"""What one evaluation keeps: the units it has cost, the device, and the variables of macros.

A frame is a list, for speed: closures read and write it by these places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes_rules.cel.types import CelError

Frame = list[Any]
Evaluate = Callable[[Frame], Any]

COST = 0
WORK = 1
DEVICE = 2
FIRST_SLOT = 3
COST_LIMIT = 1_000_000
"""The units that an evaluation may cost (resource.k8s.io/v1, CELSelectorExpressionMaxCost)."""
WORK_LIMIT = 10_000_000
"""The elements that adding lists may copy: Kubernetes charges nothing for them, as it never copies."""


class Aborted(Exception):
    """An evaluation ends here, because it costs too much or would crash Kubernetes; nothing absorbs this."""


class Failed:
    """Stands for a failed argument where costs are counted; its size is 1."""


FAILED = Failed()


def check_cost(frame: Frame) -> None:
    """Raises Aborted when the evaluation has cost more than it may."""
    if frame[COST] > COST_LIMIT or frame[WORK] > WORK_LIMIT:
        raise Aborted(f"the evaluation costs more than {COST_LIMIT} units")


def attempt(evaluate: Evaluate, frame: Frame) -> Any:
    """The value, or FAILED."""
    try:
        return evaluate(frame)
    except CelError:
        return FAILED
