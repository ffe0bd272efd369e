"""What is published for the NVLink cliques of a cluster: a pool of channels for each. Pure.

A claim for a channel is that of a gang. Its allocation gets the node selector of the channel's slice, so each
further pod of the gang is scheduled to a node of the clique.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.device import Device, Taint
from driver.devices.names import CHANNELS_DRIVER_NAME, CLIQUE_LABEL
from driver.kinds.channel import CHANNEL, KEPT_BACK, Channel, channel_name, channel_number
from driver.slices.specs import Spec, lay_out

Json = Mapping[str, Any]

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint by which an admin says that a node is off, so that nothing runs there any more."""

_MOST_LABEL_CHARACTERS, _KEPT_CHARACTERS, _DIGITS = 63, 50, 12
_MOST_TAINTS = 16
"""DeviceTaintsMaxLength of k8s.io/api/resource/v1."""


@dataclass(frozen=True, slots=True, order=True)
class Doubt:
    """A channel that a pod on a node may still have, by the value of the node in the taint."""

    channel: Channel
    node_value: str


def is_away(node: Json) -> bool:
    """Whether pods may still run on a node that Kubernetes does not reach."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = [one["status"] for one in status.get("conditions") or () if one["type"] == "Ready"]
    return ready not in ([], ["True"]) and all(
        one["key"] != OUT_OF_SERVICE for one in spec.get("taints") or ()
    )


def node_value(node: str) -> str:
    """A node's name as the value of a taint, which has at most 63 characters."""
    if len(node) <= _MOST_LABEL_CHARACTERS:
        return node
    return f"{node[:_KEPT_CHARACTERS]}-{hashlib.sha256(node.encode()).hexdigest()[:_DIGITS]}"


def doubts_in(slices: Iterable[Json]) -> Iterator[Doubt]:
    """The channels that published slices keep back: a publisher that begins anew knows no others."""
    for spec in (one["spec"] for one in slices):
        for device in spec.get("devices") or ():
            number = channel_number(device["name"])
            for taint in device.get("taints") or ():
                if taint["key"] == KEPT_BACK and number is not None:
                    yield Doubt((spec["pool"]["name"], number), taint.get("value") or "")


def pools(
    cliques: Iterable[str], channels: int, doubts: Iterable[Doubt], held: Iterable[Channel]
) -> dict[str, tuple[Spec, ...]]:
    """The slices of each pool, without ``pool.generation``, by its name, which is that of its clique.

    A clique without nodes keeps the channels that claims still have, so that they count as taken.
    """
    kept_back: dict[Channel, set[str]] = {}
    for doubt in doubts:
        kept_back.setdefault(doubt.channel, set()).add(doubt.node_value)
    wanted = {clique: set(range(1, channels + 1)) for clique in cliques}
    for clique, number in (*held, *kept_back):
        wanted.setdefault(clique, set()).add(number)
    return {clique: _slices(clique, sorted(numbers), kept_back) for clique, numbers in sorted(wanted.items())}


def _slices(clique: str, numbers: Iterable[int], kept_back: Mapping[Channel, set[str]]) -> tuple[Spec, ...]:
    devices = [
        Device(
            channel_name(number),
            None,
            {"type": CHANNEL.attribute_type, "id": number, "clique": clique},
            taints=tuple(
                Taint(KEPT_BACK, value, "NoSchedule")
                for value in sorted(kept_back.get((clique, number), ()))[:_MOST_TAINTS]
            ),
        )
        for number in numbers
    ]
    expression = {"key": CLIQUE_LABEL, "operator": "In", "values": [clique]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return lay_out(devices, pool=clique, node_selector=selector, driver=CHANNELS_DRIVER_NAME).specs
