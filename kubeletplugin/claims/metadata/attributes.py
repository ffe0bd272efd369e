"""Brings together what is told of a held device: as it was published, and what only prepare knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driver.devices.device import AttributeValue, attribute_json
from driver.devices.limits import MAX_ATTRIBUTES_AND_CAPACITIES
from kubeletplugin.claims.journal.entry import HeldDevice
from kubeletplugin.devices.kinds.kind import HeldKind


def told_attributes(
    held: HeldDevice, kind: HeldKind, published: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Any]]:
    """The attributes of a held device, in the form of a ResourceSlice.

    ``published`` is what the slices have, empty where that is not known. What prepare knows stands before it:
    a partition that was made for the claim has a UUID, a share its limits. There are at most 32 attributes
    (validation of metadata.resource.k8s.io), of which those of prepare come first.
    """
    told: dict[str, AttributeValue] = {}
    uuid = kind.cuda_uuid(held)
    if uuid:
        told["uuid"] = uuid
    if held.share is not None:
        told.update(held.share.told)
    if held.memory is not None:
        told.update(held.memory.told)
    told.update(kind.metadata(held))
    own = {name: attribute_json(value) for name, value in told.items()}
    room = MAX_ATTRIBUTES_AND_CAPACITIES - len(own)
    rest = [name for name in sorted(published) if name not in own]
    return own | {name: published[name] for name in rest[:room]}
