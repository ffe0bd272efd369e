"""Classes that insist on held memory, and claims that are not held, are told with the reason."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpuctl.doctor.check import Finding
from gpuctl.doctor.outside.memory_checks import MEMORY_CHECKS
from tests.gpuctl.doctor.clusters import INSISTING, told_claim, waiting_claim, well_cluster, with_limits

CHECKS = {check.name: check for check in MEMORY_CHECKS}


def look(name: str, **broken: Any) -> Finding:
    """What a check finds where these parts of the cluster are other than in a well one."""
    return CHECKS[name].look(dataclasses.replace(well_cluster(), **broken))


def test_a_class_that_insists_on_limits_is_no_fault_while_nobody_asks_or_a_node_holds_them() -> None:
    asked = {"classes": (INSISTING,), "claims": (waiting_claim("held"),)}

    assert "no claim asks for one" in look("class-limits", classes=(INSISTING,)).message
    held = look("class-limits", **asked, slices=with_limits("memoryIsolation", "cgroup"))
    assert (held.status, held.message) == (
        "ok",
        "a device is published for 1 class with enforced memory limits",
    )


def test_a_node_that_holds_limits_of_other_devices_is_no_reason() -> None:
    asked = {"classes": (INSISTING,), "claims": (waiting_claim("held"),)}

    assert look("class-limits", **asked, slices=with_limits("memoryLimits", "cgroup")).details == ()


def test_a_claim_that_is_held_is_well() -> None:
    found = look("claim-limits", claims=(told_claim("True"), waiting_claim("held")))

    assert (found.status, found.message) == (
        "ok",
        "no claim reports a limit that is not enforced, of 1 device with a status",
    )
