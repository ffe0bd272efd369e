"""What a claim promises a container, by the metadata files in it, and whether the probe got that.

The files are those of KEP-5304; docs/claims.md lists their attributes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.devices.names import DRIVER_NAME
from driver.errors import ConfigError, CudaError
from gpuctl.probe.answer import Device
from gpuctl.probe.run import OK

METADATA_FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
"""The folder of the files in containers (ContainerDir of k8s.io/dynamic-resource-allocation/api/metadata)."""

LEAST_SHARE = 0.95
"""The part of the promised memory that the probe has to get, besides CONTEXT_BYTES."""

CONTEXT_BYTES = 768 << 20
"""What CUDA may take for its context and kernels: a few hundred MiB, which count against limits."""

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Promised:
    """A device of the claim; None is what the files do not say.

    ``type`` and ``sharing`` are the attributes of the same names. ``limit_bytes`` is the most memory that the
    container can get; None where nobody holds the memory of shares apart.
    """

    uuid: str
    type: str | None
    sharing: str | None
    limit_bytes: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all memory of the device belongs to the claim."""
        return self.type in ("gpu", "mig") and self.sharing is None

    @property
    def may_be_filled(self) -> bool:
        """Whether taking all memory that there is takes it from nobody else."""
        return self.whole or self.limit_bytes is not None

    def words(self) -> str:
        """What it is, for people."""
        if self.whole:
            return "a whole GPU" if self.type == "gpu" else "a partition"
        return f"a share by {self.sharing}" if self.sharing else "a device"


def read_promises(places: Sequence[Path]) -> tuple[Promised, ...]:
    """The devices that metadata files name, or those below folders; raises ConfigError without any."""
    files = [
        file
        for place in places
        for file in (sorted(place.rglob(f"{DRIVER_NAME}-metadata.json")) if place.is_dir() else [place])
    ]
    found: list[Promised] = []
    for file in files:
        try:
            # The versions of the API follow each other, with the same content.
            document, _ = json.JSONDecoder().raw_decode(file.read_text())
            found += [_promised(one) for request in document["requests"] for one in request["devices"]]
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}", _WAY_OUT) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file} is no file of device metadata ({error!r})", _WAY_OUT) from error
    if not found:
        raise ConfigError(f"{', '.join(map(str, places))} has no metadata of a claim", _WAY_OUT)
    # Several requests, or containers of a claim, may have shares of the same GPU.
    return tuple({one.uuid: one for one in found}.values())


_WAY_OUT = "run this in a container that has a claim for a GPU"


def _promised(device: Mapping[str, Any]) -> Promised:
    told: dict[str, Any] = {
        name: next(iter(value.values())) for name, value in (device.get("attributes") or {}).items()
    }
    # Slices say ``none`` of what is not shared.
    sharing = None if told.get("sharing") == "none" else told.get("sharing")
    pinned, limit = told.get("pinnedMemoryMiB"), told.get("memoryLimitBytes")
    if pinned is not None:
        # MPS holds each process to it, and nothing keeps others from memory that was not taken yet.
        limit = min(pinned * _MIB, limit or pinned * _MIB)
    return Promised(told["uuid"], told.get("type"), sharing, limit)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the claim's promise is kept, in one line."""

    kept: bool
    line: str


def judged(promises: Sequence[Promised], devices: Sequence[Device], error: CudaError | None) -> Verdict:
    """Compare what was promised with what the probe got."""
    by_uuid = {one.uuid: one for one in promises}
    broken = [f"{error.what}"] if error is not None else []
    seen = {str(one.uuid) for one in devices}
    foreign, missing = sorted(seen - by_uuid.keys()), sorted(by_uuid.keys() - seen)
    # A process sees one MIG device at most (MIG user guide), whichever of its container's.
    one_is_enough = any(uuid.startswith("MIG-") for uuid in by_uuid) and bool(seen - set(foreign))
    if foreign:
        broken.append(f"CUDA shows {', '.join(foreign)}, which the claim does not have")
    if missing and not one_is_enough and error is None:
        broken.append(f"CUDA does not show {', '.join(missing)}")
    got = [(by_uuid[str(one.uuid)], one) for one in devices if one.uuid in by_uuid]
    for promise, used in got:
        broken += _broken(promise, used)
    if broken:
        return Verdict(kept=False, line=f"NOT KEPT: {'; '.join(dict.fromkeys(broken))}")
    return Verdict(kept=True, line=f"kept: {'; '.join(_kept(*one) for one in got)}")


def _broken(promise: Promised, used: Device) -> Iterable[str]:
    """What one device lacks of its promise."""
    if used.kernel != OK:
        yield used.kernel
        return
    if promise.sharing == "mps" and used.under_mps is False:
        yield f"the process is no client of MPS on {used.uuid}, so no limit holds"
    got, limit = used.allocated_bytes, promise.limit_bytes
    if limit is not None and got > limit:
        yield f"it got {got // _MIB} MiB of {used.uuid}, more than its limit of {limit // _MIB} MiB"
    if not promise.may_be_filled:
        return
    wanted = (used.total_bytes if promise.whole else promise.limit_bytes) or 0
    if got < wanted * LEAST_SHARE - CONTEXT_BYTES:
        yield f"it got {got // _MIB} MiB of {used.uuid}, and {wanted // _MIB} MiB are promised"


def _kept(promise: Promised, used: Device) -> str:
    """One device with what it promises, for people."""
    said = f"{promise.words()}, {used.name} ({used.uuid})"
    if promise.may_be_filled:
        wanted = (used.total_bytes if promise.whole else promise.limit_bytes) or 0
        return f"{said}, {used.allocated_bytes // _MIB} of {wanted // _MIB} MiB"
    return said
