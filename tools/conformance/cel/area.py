"""Compares device selectors: whether they compile, their results, and their costs."""

from __future__ import annotations

import re

from kubernetes_rules.cel.selector import SelectorDevice, SelectorFailed, SelectorInvalid, compile_selector
from tools.conformance.area import Answer, Area, Case
from tools.conformance.cel.cases import written
from tools.conformance.cel.random import random_case

_UNORDERED = re.compile(
    r"(?:(?:attributes|capacity)(?:\[[^]]*\])?|\}\)?)\.(?:all|exists|exists_one|existsOne|map|filter|transform\w+)\("
)
"""A macro over a map. Go iterates maps in random order, so that its cost in Kubernetes is random too."""


def our_answer(case: Case) -> Answer:
    """Our answer, in the form of the oracle's answers."""
    device = case["device"]
    try:
        selector = compile_selector(case["expression"])
    except SelectorInvalid as error:
        return {"compileError": str(error)}
    subject = SelectorDevice(
        device.get("driver", ""),
        device.get("attributes") or {},
        device.get("capacity") or {},
        device.get("allowMultipleAllocations") is True,
    )
    try:
        matches = selector.matches(subject)
        cost = selector.evaluated(subject).cost
    except SelectorFailed as error:
        return {"error": str(error)}
    return {"matches": matches, "cost": cost}


def difference(case: Case, answer: Answer) -> str | None:
    """How our answer differs; error messages may differ."""
    ours = our_answer(case)
    for kind in ("compileError", "error"):
        if (kind in ours) is not (kind in answer):
            return f"Kubernetes answers {answer}, the driver {ours}"
    if ours.get("matches") != answer.get("matches"):
        return f"Kubernetes answers {answer}, the driver {ours}"
    if ours.get("cost") != answer.get("cost") and not _UNORDERED.search(case["expression"]):
        return f"Kubernetes answers {answer}, the driver {ours}"
    return None


AREA = Area("cel", lambda: tuple(written()), random_case, difference)
