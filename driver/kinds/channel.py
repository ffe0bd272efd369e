"""Channels of multi-node NVLink (IMEX), by which pods on several nodes export GPU memory to each other.

A channel is a device of an NVLink clique and not of a node: ``controller/cliques`` publishes those of all
cliques, under a driver name of their own. So they are nothing that a node's GPUs are offered as.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import CHANNELS_DRIVER_NAME
from driver.devices.region import Region
from driver.hardware.gpu import Inventory
from driver.kinds.forms import Forms
from driver.kinds.kind import OfferedKind, Policies, PolicyField

MOST_CHANNELS = 2047
"""The highest channel of the NVIDIA driver (NVreg_ImexChannelCount has 2048 by default). Channel 0 belongs to
NVIDIA's own DRA driver, which gives it to every job of a host."""

KEPT_BACK = f"{CHANNELS_DRIVER_NAME}/node-not-ready"
"""The taint of a channel that a pod on a node that is not ready may still have; its value names the node."""

Channel = tuple[str, int]
"""A clique, and the number of a channel there."""

Claim = tuple[str, str]
"""Namespace and name."""

Object = Mapping[str, Any]

_NAME = re.compile(r"channel-([1-9][0-9]{0,3})", re.ASCII)


class ChannelKind(OfferedKind):
    """Channels. They lie on no GPU."""

    word = "channel"
    form = ""
    attribute_type = "channel"
    opaque = ""
    described = "an IMEX channel"
    by_admin = False
    has_modes = False
    leaves_driver = False
    policy_field: PolicyField | None = None

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """None: a node offers no channels."""
        return so_far

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """Nothing of any GPU."""
        return None if channel_number(unshared) is None else ()

    def title(self, unshared: str, attributes: object) -> str:
        """Its name."""
        return unshared


CHANNEL = ChannelKind()


def channel_name(number: int) -> str:
    """The device name of a channel: ``channel-7``."""
    return f"channel-{number}"


def channel_number(name: str) -> int | None:
    """The number in the device name of a channel; None for any other name."""
    match = _NAME.fullmatch(name)
    number = int(match[1]) if match else 0
    return number if 1 <= number <= MOST_CHANNELS else None


def cliques_of(slices: Iterable[Object]) -> dict[str, str]:
    """The clique of each node, by the GPUs in its slices; none for a node whose GPUs are in several."""
    found: dict[str, set[str]] = {}
    for spec in (one["spec"] for one in slices):
        for device in spec.get("devices") or ():
            clique = (device.get("attributes") or {}).get("fabricClique", {}).get("string")
            if clique and spec.get("nodeName"):
                found.setdefault(spec["nodeName"], set()).add(clique)
    return {node: clique for node, cliques in found.items() for clique in cliques if len(cliques) == 1}


def allocated(claims: Iterable[Object]) -> Iterator[tuple[Claim, Channel]]:
    """The channels that claims have, each with the namespace and name of its claim."""
    for claim in claims:
        metadata, allocation = claim["metadata"], (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            number = channel_number(result["device"])
            if result["driver"] == CHANNELS_DRIVER_NAME and number is not None:
                yield (metadata["namespace"], metadata["name"]), (result["pool"], number)


@dataclass(frozen=True, slots=True)
class CliqueState:
    """An NVLink clique and its channels.

    ``held`` are those that claims have. ``kept_back`` are those that no claim has, but a pod on a node that
    is not ready may still have.
    """

    name: str
    nodes: tuple[str, ...]
    channels: int
    held: int
    kept_back: int

    @property
    def free(self) -> int:
        """How many gangs could begin now."""
        return self.channels - self.held - self.kept_back


def clique_states(slices: Iterable[Object], claims: Iterable[Object]) -> tuple[CliqueState, ...]:
    """The cliques whose channels are published, by name; ``slices`` are those of both drivers."""
    slices = list(slices)
    newest: dict[str, dict[int, list[Object]]] = {}
    for spec in (one["spec"] for one in slices if one["spec"]["driver"] == CHANNELS_DRIVER_NAME):
        by_generation = newest.setdefault(spec["pool"]["name"], {})
        by_generation.setdefault(spec["pool"]["generation"], []).extend(spec.get("devices") or ())
    pools = {name: by_generation[max(by_generation)] for name, by_generation in newest.items()}
    nodes: dict[str, list[str]] = {name: [] for name in pools}
    for node, clique in cliques_of(slices).items():
        nodes.setdefault(clique, []).append(node)
    held = {channel for _, channel in allocated(claims)}
    return tuple(
        CliqueState(
            name,
            tuple(sorted(nodes[name])),
            len(devices),
            sum((name, channel_number(one["name"])) in held for one in devices),
            sum((name, channel_number(one["name"])) not in held and _is_kept_back(one) for one in devices),
        )
        for name, devices in sorted(pools.items())
    )


def _is_kept_back(device: Object) -> bool:
    return any(one["key"] == KEPT_BACK for one in device.get("taints") or ())
