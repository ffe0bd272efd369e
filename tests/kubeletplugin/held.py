"""Held devices and their kinds, as tests make and read them."""

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from kubeletplugin.devices.host.gpu_nodes import GpuNodes
from kubeletplugin.devices.host.imex import Rack
from kubeletplugin.devices.kinds.kind import NodeKinds, NodePorts
from kubeletplugin.devices.kinds.partition.record import partition_name, written
from tests.gpus import Discovery, FakeMachine, Guard
from tests.kubeletplugin.fake_imex import FakeImex
from tests.kubeletplugin.fake_node import NoKernel, pci_parts
from tests.plugin import (
    HELD_KINDS,
    Controllers,
    HeldDevice,
    InstalledDriver,
    Journal,
    PartitionRecord,
    record_of,
)

_FOLDER = tempfile.TemporaryDirectory(prefix="kinds-")


@cache
def held_kinds() -> NodeKinds:
    """The kinds of a node whose hardware is not asked."""
    nowhere = Path(_FOLDER.name)
    ports = NodePorts(
        Discovery(FakeMachine.open("a30-quad").nvml(), nowhere, Guard()),
        GpuNodes(nowhere),
        Journal(nowhere / "journal", lambda: False),
        nowhere,
        *pci_parts(NoKernel(), nowhere)[:3],
        InstalledDriver.below(nowhere),
        Controllers(lambda _number: None),
        Rack(lambda: None, FakeImex()),
    )
    return HELD_KINDS.on(ports)


def made(record: PartitionRecord) -> dict[str, Any]:
    """The fields of a held device that say that it is a partition, made for its claim."""
    return {"kind": "partition", "record": written(record)}


def partition_of(held: HeldDevice) -> PartitionRecord | None:
    """The record of a held device where it is a partition, and known."""
    return record_of(held) if held.record and partition_name(held) is not None else None


def cuda_uuid(held: HeldDevice) -> str:
    """What CUDA knows a held device by."""
    return HELD_KINDS.of(held).cuda_uuid(held)
