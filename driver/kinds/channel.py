"""Channels of multi-node NVLink (IMEX), by which pods on several nodes export GPU memory to each other.

A channel is a device of an NVLink clique and not of a node: ``controller/cliques`` publishes those of all
cliques, under a driver name of their own. So they are nothing that a node's GPUs are offered as.
"""

from __future__ import annotations

import re

from driver.devices.region import Region
from driver.hardware.gpu import Inventory
from driver.kinds.forms import Forms
from driver.kinds.kind import OfferedKind, Policies, PolicyField

MOST_CHANNELS = 2047
"""The highest channel of the NVIDIA driver (NVreg_ImexChannelCount has 2048 by default). Channel 0 belongs to
NVIDIA's own DRA driver, which gives it to every job of a host."""

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
