"""Compares ValidatingAdmissionPolicies: which are refused, and what they make of writes."""

from __future__ import annotations

import copy
import re
from typing import Any

from kubernetes_rules.admission.objects import binding_errors, policy_errors
from kubernetes_rules.admission.policies import Surroundings, compile_policy, judge
from kubernetes_rules.admission.writes import Write
from kubernetes_rules.cel.library_authorization import Check
from kubernetes_rules.kind_defaults import fill_in_defaults
from tools.conformance.area import Answer, Area, Case
from tools.conformance.rules.cases import written_policies
from tools.conformance.rules.random_policies import random_case

_OWN_WORDS = (
    (
        re.compile(r"compilation failed: ERROR: .*(?:Syntax error|error during formatting).*", re.DOTALL),
        "syntax",
    ),
    (re.compile(r"resulted in error: .*", re.DOTALL), "resulted in error"),
    (re.compile(r"fails to evaluate: .*", re.DOTALL), "fails to evaluate"),
)


def _words(text: str) -> str:
    for pattern, replacement in _OWN_WORDS:
        text = pattern.sub(replacement, text)
    return text


def _complete(item: dict[str, Any]) -> dict[str, Any]:
    completed = copy.deepcopy(item)
    fill_in_defaults(completed, None)
    return completed


def _authorize(check: Check) -> tuple[bool, str]:
    """The rights that the oracle gives too."""
    allowed = check.user["username"] == "admin" or check.verb == "get"
    return allowed, "" if allowed else "no rule"


def _judged(case: Case) -> Answer:
    given = case["write"]
    write = Write(
        given["group"], given["version"], given["kind"], given["resource"], given["subresource"],
        given["namespace"], given["name"], given["operation"], case.get("object"), case.get("old"),
        {"username": given["user"], "groups": given["groups"]},
    )  # fmt: skip
    surroundings = Surroundings(
        lambda name: case["namespace"] if name == case["namespace"]["metadata"]["name"] else None,
        lambda *_: (case["paramScope"] == "namespace", case["params"]),
        _authorize,
    )
    policy, binding = (_complete(case[name]) for name in ("policy", "binding"))
    verdict = judge(write, [(compile_policy(policy), [binding])], surroundings)
    answer: Answer = {"warnings": verdict.warnings}
    if verdict.denial is not None:
        answer |= {"code": verdict.denial.code, "reason": verdict.denial.reason}
        answer["message"] = f'deployments.apps "{write.shown_name}" is forbidden: {verdict.denial.message}'
    return answer


def our_answer(case: Case) -> Answer:
    """Our answer, in the form of the oracle's answers."""
    if case["op"] == "policy":
        return _judged(case)
    item = _complete(case["object"])
    check = binding_errors if item["kind"].endswith("Binding") else policy_errors
    return {"errors": sorted({str(error) for error in check(item)})}


def _compared(answer: Answer) -> dict[str, Any]:
    """An answer without what differs on purpose: words of the grammar, and of functions for wrong values."""
    if "errors" in answer:
        return {"errors": sorted(map(_words, answer["errors"]))}
    return {
        **{key: answer.get(key) for key in ("code", "reason")},
        "message": _words(answer.get("message", "")),
        "warnings": list(map(_words, answer["warnings"])),
    }


def difference(case: Case, answer: Answer) -> str | None:
    """How our answer differs."""
    if "error" in answer:
        return f"Kubernetes does not understand the case: {answer['error']}"
    theirs, ours = _compared(answer), _compared(our_answer(case))
    return None if theirs == ours else f"Kubernetes answers {theirs}, we {ours}"


AREA = Area("policies", written_policies, random_case, difference)
