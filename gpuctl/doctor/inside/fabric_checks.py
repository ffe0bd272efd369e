"""Checks of the NVLink fabric: the fabric manager, and the partitions that it has active."""

from __future__ import annotations

from gpuctl.doctor.check import Check, Finding, counted, fail, ok, skipped, warn
from gpuctl.doctor.inside.seen import NodeSeen
from gpuctl.doctor.outside.seen import Unread


def _fabric(seen: NodeSeen) -> Finding:
    partitions, noted = seen.fabric.partitions, seen.fabric.noted
    if partitions is None and not noted:
        return skipped("no fabric manager with a shared fabric takes commands at a socket")
    if partitions is None or isinstance(partitions, Unread):
        why = "no fabric manager listens" if partitions is None else partitions.why
        return fail(
            f"the fabric manager cannot be asked, so GPUs get no NVLinks: {why}",
            "see that nvidia-fabricmanager runs, configured as docs/fabric-partitions.md says",
        )
    active = {one.number for one in partitions if one.active}
    lost, foreign = sorted(noted - active), sorted(active - noted)
    if lost:
        return fail(
            f"{counted(len(lost), 'fabric partition')} of claims not active",
            "the plugin activates them within half a minute: its log says what is in the way",
            [f"partition {number}" for number in lost],
        )
    if foreign:
        return warn(
            f"{counted(len(foreign), 'fabric partition')} active for no claim of this node",
            "whoever activated them deactivates them (fmpm -d NUMBER), if their GPUs are to be handed out",
            [f"partition {number}" for number in foreign],
        )
    return ok(f"{counted(len(partitions), 'fabric partition')}, {len(active)} active, each for a claim")


FABRIC_CHECKS: tuple[Check[NodeSeen], ...] = (
    Check(
        "fabric",
        "the fabric manager, where it listens, and its partitions against those that the plugin activated",
        "it cannot be asked, or a partition of a claim is not active; warns of those of others",
        _fabric,
    ),
)
