"""The state of one evaluation: the units it has cost, the device, and the variables of macros.

A frame is a list, for speed: closures read and write it by these indexes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Frame = list[Any]
Evaluate = Callable[[Frame], Any]

COST = 0
WORK = 1
DEVICE = 2
FIRST_SLOT = 3
COST_LIMIT = 1_000_000
"""The units that an evaluation may cost (resource.k8s.io/v1, CELSelectorExpressionMaxCost)."""
WORK_LIMIT = 10_000_000
"""The elements that adding lists may copy. In Kubernetes they cost nothing, since cel-go does not copy."""

FAILED = object()
"""Replaces the value of a failed argument when costs are computed; its size is 1."""


class Aborted(Exception):
    """The evaluation ends: it costs too much, or Kubernetes would panic. No operator absorbs this."""


class CostExceeded(Aborted):
    """The evaluation ends because it costs more than one evaluation may."""


def check_cost(frame: Frame) -> None:
    """Raises CostExceeded if the evaluation has cost more than it may."""
    if frame[COST] > COST_LIMIT or frame[WORK] > WORK_LIMIT:
        raise CostExceeded(f"the evaluation costs more than {COST_LIMIT} units")
