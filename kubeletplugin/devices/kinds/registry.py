"""The kinds of devices that this driver prepares; ``HELD_KINDS.added`` adds one of somebody else."""

from __future__ import annotations

from kubeletplugin.devices.kinds.channel import HeldChannel
from kubeletplugin.devices.kinds.kind import HeldKinds
from kubeletplugin.devices.kinds.partition.held import HeldMade, HeldStatic
from kubeletplugin.devices.kinds.passthrough.held import HeldPassthrough
from kubeletplugin.devices.kinds.unknown import HeldUnknown
from kubeletplugin.devices.kinds.vgpu.held import HeldVgpu
from kubeletplugin.devices.kinds.whole import HeldWhole

HELD_KINDS = HeldKinds((HeldWhole, HeldStatic, HeldMade, HeldVgpu, HeldPassthrough, HeldChannel), HeldUnknown)
