"""What of memory limits is well, though it looks as if it were not."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpuctl.doctor.check import Finding
from gpuctl.doctor.inside.memory_checks import MEMORY_CHECKS
from tests.gpuctl.doctor.nodes import UID, limit, limited_parts, memory_seen, shared, well_node

CHECKS = {check.name: check for check in MEMORY_CHECKS}


def look(name: str, **broken: Any) -> Finding:
    """What a check finds where these parts of the node are other than on a well one."""
    return CHECKS[name].look(dataclasses.replace(well_node(), **broken))


def test_shares_that_nobody_holds_are_well_where_the_node_could_hold_others() -> None:
    assert (
        look("memory-limits", **{**limited_parts(), "journal": {UID: shared(limited=False)}}).status == "ok"
    )


def test_a_limit_that_nvml_rounded_down_is_held() -> None:
    assert (
        look(
            "memory-held", **{**limited_parts(), "memory": memory_seen(limits=(limit(told_bytes=4 << 30),))}
        ).status
        == "ok"
    )
