"""A program that makes one call of libnvfm and prints the answer. It is run by its path, as a child process.

The request is one JSON object on stdin: ``library`` (a path), ``socket`` (a path), ``timeout_ms``, ``call``
(the C function) and ``partitions`` (ids). The answer is one JSON object on stdout: ``failed`` (the C function
that failed) with ``code``, or ``unusable`` (the message of the dynamic linker), or ``partitions``.

Structures and versions are those of nv_fm_types.h (release 2.x, since driver 450).
"""

# The library may hang, and it keeps threads and a connection, which a serving process must not have. This
# module imports only the standard library, so that the process starts in some ten milliseconds.

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

_TEXT = 256
_UUID = 80
_PCI = 32
_MOST_GPUS = 16
_MOST_PARTITIONS = 64
_SUCCESS = 0


class ConnectParams(ctypes.Structure):
    """fmConnectParams_v1."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("addressInfo", ctypes.c_char * _TEXT),
        ("timeoutMs", ctypes.c_uint),
        ("addressIsUnixSocket", ctypes.c_uint),
    )


class GpuInfo(ctypes.Structure):
    """fmFabricPartitionGpuInfo_t."""

    _fields_ = (
        ("physicalId", ctypes.c_uint),
        ("uuid", ctypes.c_char * _UUID),
        ("pciBusId", ctypes.c_char * _PCI),
        ("numNvLinksAvailable", ctypes.c_uint),
        ("maxNumNvLinks", ctypes.c_uint),
        ("nvlinkLineRateMBps", ctypes.c_uint),
    )


class PartitionInfo(ctypes.Structure):
    """fmFabricPartitionInfo_t."""

    _fields_ = (
        ("partitionId", ctypes.c_uint),
        ("isActive", ctypes.c_uint),
        ("numGpus", ctypes.c_uint),
        ("gpuInfo", GpuInfo * _MOST_GPUS),
    )


class PartitionList(ctypes.Structure):
    """fmFabricPartitionList_v2, whose version number is 1."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("numPartitions", ctypes.c_uint),
        ("maxNumPartitions", ctypes.c_uint),
        ("partitionInfo", PartitionInfo * _MOST_PARTITIONS),
    )


class ActivatedList(ctypes.Structure):
    """fmActivatedFabricPartitionList_v1."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("numPartitions", ctypes.c_uint),
        ("partitionIds", ctypes.c_uint * _MOST_PARTITIONS),
    )


class _Failed(Exception):
    """A call of the library ended with a return code other than success."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(call)
        self.answer = {"failed": call, "code": code}


def versioned(structure: Any) -> Any:
    """The structure with its version set, as the macro MAKE_FM_PARAM_VERSION does."""
    # The size is in the low 24 bits, the version (1 for all structures here) above them.
    structure.version = ctypes.sizeof(structure) | 1 << 24
    return structure


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Make the call over a connection of its own."""
    try:
        library = ctypes.CDLL(request["library"])
        # ctypes looks a function up when it is named: a missing one shows here, not half-way.
        for call in ("fmLibInit", "fmLibShutdown", "fmConnect", "fmDisconnect", request["call"]):
            getattr(library, call)
    except (OSError, AttributeError) as error:
        return {"unusable": str(error)}
    try:
        _check("fmLibInit", library.fmLibInit())
        handle = _connected(library, request)
        partitions = _call(library, handle, request)
        # The call is done, so the result of disconnecting does not matter.
        library.fmDisconnect(handle)
        library.fmLibShutdown()
    except _Failed as failed:
        return failed.answer
    return {"partitions": partitions}


def _connected(library: Any, request: dict[str, Any]) -> ctypes.c_void_p:
    params, handle = versioned(ConnectParams()), ctypes.c_void_p()
    params.addressInfo = request["socket"].encode()
    params.timeoutMs = request["timeout_ms"]
    params.addressIsUnixSocket = 1
    _check("fmConnect", library.fmConnect(ctypes.byref(params), ctypes.byref(handle)))
    return handle


def _call(library: Any, handle: ctypes.c_void_p, request: dict[str, Any]) -> list[dict[str, Any]]:
    call, partitions = request["call"], request["partitions"]
    function = getattr(library, call)
    if call == "fmGetSupportedFabricPartitions":
        found = versioned(PartitionList())
        _check(call, function(handle, ctypes.byref(found)))
        # The count comes from outside: more than the array has must not be read.
        return [_plain(one) for one in found.partitionInfo[: min(found.numPartitions, _MOST_PARTITIONS)]]
    if call == "fmSetActivatedFabricPartitions":
        activated = versioned(ActivatedList())
        activated.numPartitions = len(partitions)
        activated.partitionIds[: len(partitions)] = partitions
        _check(call, function(handle, ctypes.byref(activated)))
        return []
    for partition in partitions:
        _check(call, function(handle, ctypes.c_uint(partition)))
    return []


def _plain(partition: Any) -> dict[str, Any]:
    gpus = partition.gpuInfo[: min(partition.numGpus, _MOST_GPUS)]
    return {
        "number": partition.partitionId,
        "active": bool(partition.isActive),
        "gpus": [
            {
                "physical_id": gpu.physicalId,
                "uuid": gpu.uuid.decode(errors="replace"),
                "pci": gpu.pciBusId.decode(errors="replace"),
            }
            for gpu in gpus
        ],
    }


def _check(call: str, code: int) -> None:
    if code != _SUCCESS:
        raise _Failed(call, code)


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
