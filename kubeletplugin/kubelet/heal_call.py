"""Answers NodeState.Heal: an admin has a GPU looked at, or reset. The socket is root's alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletplugin.kubelet.wire.heal import HealProgress, HealWish
from proto import node_state_v1_pb2 as v1

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubeletplugin.kubelet.wire.heal import Heal

LONGEST_WAIT_SECONDS = 3600.0
"""A call takes one of the workers that prepare claims."""


def heal_steps(heal: Heal, request: v1.HealRequest) -> Iterator[v1.HealProgress]:
    """The steps as they are sent."""
    wait_seconds = min(float(request.wait_seconds), LONGEST_WAIT_SECONDS)
    yield from map(answer, heal(HealWish(request.gpu, request.reset, wait_seconds)))


def answer(progress: HealProgress) -> v1.HealProgress:
    """One step as it is sent."""
    return v1.HealProgress(
        step=progress.step,
        pci_bus_ids=map(str, progress.gpus),
        claims=[
            v1.HoldingClaim(namespace=one.namespace, name=one.name, uid=one.uid) for one in progress.claims
        ],
        processes=[
            v1.UsingProcess(process_id=one.pid, name=one.name, pod_uid=one.pod_uid)
            for one in progress.processes
        ],
        message=progress.message,
    )
