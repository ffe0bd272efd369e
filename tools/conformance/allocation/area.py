"""Compares allocations: the devices that claims get on a node, that they do not fit, or that it fails."""

from __future__ import annotations

import json
from typing import Any

from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from tools.conformance.allocation.cases import CASES
from tools.conformance.allocation.random_cases import random_case
from tools.conformance.area import Answer, Area, Case, version_of


def our_answer(case: Case) -> Answer:
    """Our allocator's answer, in the form of the oracle's answers."""
    try:
        allocator = Allocator(case["slices"], case["classes"], case["allocated"], version_of(case))
        results = allocator.allocate(case["node"], case["claims"])
    except AllocationFailed as error:
        return {"error": str(error)}
    return {"none": True} if results is None else {"results": results}


def gave_up(answer: Answer) -> bool:
    """Whether our search ended without an answer, as it may for one of some ten thousand random cases."""
    return "too many ways to try" in answer.get("error", "")


def _comparable(answer: Answer) -> Any:
    """The answer without error messages and share IDs, which may differ."""
    if "error" in answer:
        return "error"
    for result in answer.get("results") or ():
        for device in result["devices"].get("results", ()):
            if "shareID" in device:
                device["shareID"] = "any"
    return answer


def _difference(case: Case, answer: Answer) -> str | None:
    ours = our_answer(case)
    if _comparable(ours) == _comparable(answer) or gave_up(ours):
        return None
    return f"Kubernetes {json.dumps(answer, sort_keys=True)}\n  ours       {json.dumps(ours, sort_keys=True)}"


AREA = Area("allocation", lambda: CASES, random_case, _difference, recorded=800)
