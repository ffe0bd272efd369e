"""Writes, completes and removes the files in which a container reads which devices it has (KEP-5304).

There is one file for each request of a claim. It is a stream of JSON objects with the same content in several
versions of metadata.resource.k8s.io, the newest first. A reader takes the first version that it knows. The
types are in k8s.io/dynamic-resource-allocation/api/metadata.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.devices.device import AttributeValue, attribute_json
from driver.devices.limits import MAX_ATTRIBUTES_AND_CAPACITIES
from driver.devices.names import DRIVER_NAME
from driver.errors import DriverError
from driver.process.durable import (
    TEMPORARY_PREFIX,
    make_private_folder,
    remove,
    storage_errors,
    write_atomically,
)
from driver.process.log import get_logger
from kubeletplugin.claims.cdi.spec import CdiMount
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, claim_key
from kubeletplugin.devices.kinds.kind import HeldKind, NodeKinds
from kubeletplugin.kubelet.wire.names import claim_of_metadata_file, metadata_file_name
from kubeletplugin.reports.published import PublishedDevices

_LOCK_SECONDS = 2.0

_log = get_logger("metadata")

# KubeVirt 1.8 and 1.9, and everything that is built with Kubernetes 1.36, read only the older one.
_VERSIONS = ("v1beta1", "v1alpha1")

CONTAINER_FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
"""The folder in containers, ``ContainerDir`` of k8s.io/dynamic-resource-allocation/api/metadata."""

# A DNS label, as requests of a claim and claims of a pod have to be.
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class ClaimMetadata:
    """The files of the claims of one node. Callers hold the claim's lock."""

    def __init__(self, store: MetadataStore, kinds: NodeKinds, published: PublishedDevices) -> None:
        self._store = store
        self._kinds = kinds
        self._published = published

    def write(self, entry: Entry) -> None:
        """Write the files of a claim whose devices are made. Raises StorageError."""
        self._write(entry, requests_of(entry))

    def complete(self, entry: Entry) -> None:
        """Write the missing files, and leave the others as they are. Raises StorageError."""
        # The others were written when the claim was prepared, from slices that may be gone by now.
        there = self._store.has
        missing = {one: held for one, held in requests_of(entry).items() if not there(entry.uid, one)}
        self._write(entry, missing)

    def is_complete(self, entry: Entry) -> bool:
        """Whether every request of the claim has its file."""
        return all(self._store.has(entry.uid, request) for request in requests_of(entry))

    def remove(self, entry: Entry) -> None:
        """Remove the files of a claim, if there are any. Raises StorageError."""
        # Its requests are not known, so neither are the names of its files.
        if entry.state == "lost":
            self._store.remove_all(entry.uid)
        for request in possible_requests(entry):
            self._store.remove(entry.uid, request)

    def _write(self, entry: Entry, requests: Mapping[str, tuple[HeldDevice, ...]]) -> None:
        claim = MetadataClaim(entry.namespace, entry.name, entry.uid, pod_claim_name(entry))
        for request, devices in requests.items():
            told = [self._device(held) for held in devices]
            content = document(claim, devices[0].request, told, self._store.driver)
            self._store.write(entry.uid, request, content)

    def _device(self, held: HeldDevice) -> MetadataDevice:
        attributes = device_attributes(held, self._kinds.of(held), self._published.attributes_of(held.device))
        return MetadataDevice(held.pool, held.allocated_name, attributes)


def sweep(store: MetadataStore, journal: Journal, locks: KeyedLocks) -> tuple[str, ...]:
    """Remove the files of claims that hold nothing: a crash has left them.

    Files that cannot be removed are logged and stay, since nobody reads them. Returns the UIDs of the claims
    whose files were removed.
    """
    removed = []
    try:
        uids = store.uids()
    except DriverError as error:
        _log.warning("cannot remove old metadata files", error=str(error))
        return ()
    # Listed before the journal is read: a claim's entry is written before its files, so each file of a claim
    # that is being prepared now finds its entry.
    held = {entry.uid for entry in journal.held()}
    for uid in uids:
        try:
            if uid not in held and _swept(uid, store, journal, locks):
                removed.append(uid)
        except DriverError as error:
            _log.warning("cannot remove old metadata files", uid=uid, error=str(error))
    return tuple(removed)


def _swept(uid: str, store: MetadataStore, journal: Journal, locks: KeyedLocks) -> bool:
    """Remove the files of a claim that holds nothing, and return whether it did.

    Raises StorageError, ClaimBlocked.
    """
    with locks.holding([claim_key(uid)], _LOCK_SECONDS):
        # Read again under the lock, since another instance may have prepared the claim until now.
        entry = journal.get(uid)
        if uid in journal.unreadable() or (entry is not None and entry.holds):
            return False
        store.remove_all(uid)
    return True


def device_attributes(
    held: HeldDevice, kind: HeldKind, published: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Any]]:
    """The attributes of a held device, in the form of a ResourceSlice.

    ``published`` has the attributes of the slices, empty if they are not known. Attributes that only prepare
    knows replace them: the UUID of a partition that was made for the claim, or the limits of a share.
    """
    known: dict[str, AttributeValue] = {}
    uuid, of_kind = kind.cuda_uuid(held), kind.metadata(held)
    if uuid:
        known["uuid"] = uuid
    if held.share is not None:
        known.update(held.share.attributes)
    if held.memory_limit_bytes is not None:
        known["memoryLimitBytes"] = held.memory_limit_bytes
    if held.admin_access:
        known["adminAccess"] = True
    known.update(of_kind)
    own = {name: attribute_json(value) for name, value in known.items()}
    # Validation of metadata.resource.k8s.io allows 32 attributes, and those of prepare come first.
    room = MAX_ATTRIBUTES_AND_CAPACITIES - len(own)
    rest = [name for name in sorted(published) if name not in own]
    return own | {name: published[name] for name in rest[:room]}


@dataclass(frozen=True, slots=True)
class MetadataClaim:
    """The claim of the request.

    ``pod_claim_name`` is the pod's name for the claim, empty if no template made the claim.
    """

    namespace: str
    name: str
    uid: str
    pod_claim_name: str


@dataclass(frozen=True, slots=True)
class MetadataDevice:
    """One device of the request, with attributes in the form of a ResourceSlice."""

    pool: str
    name: str
    attributes: Mapping[str, Any]


def document(
    claim: MetadataClaim, request: str, devices: Iterable[MetadataDevice], driver: str = DRIVER_NAME
) -> bytes:
    """The content of a request's file. ``request`` is as in the allocation, with its subrequest."""
    content: dict[str, Any] = {
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "generation": 1,
        },
    }
    if claim.pod_claim_name:
        content["podClaimName"] = claim.pod_claim_name
    content["requests"] = [{"name": request, "devices": [_device(device, driver) for device in devices]}]
    # The versions differ in nothing but their name, so the rest is encoded once.
    rest = json.dumps(content, separators=(",", ":"))[1:]
    head = '{{"kind":"DeviceMetadata","apiVersion":"metadata.resource.k8s.io/{}",'
    return "".join(f"{head.format(version)}{rest}\n" for version in _VERSIONS).encode()


def _device(device: MetadataDevice, driver: str) -> dict[str, Any]:
    content: dict[str, Any] = {"driver": driver, "pool": device.pool, "name": device.name}
    if device.attributes:
        content["attributes"] = dict(sorted(device.attributes.items()))
    return content


class MetadataStore:
    """The metadata files. They mean nothing after the boot, so nothing is fsynced."""

    def __init__(self, folder: Path, driver: str = DRIVER_NAME) -> None:
        """Make the folder if it is missing. ``driver`` is the DRA driver. Raises StorageError."""
        self.folder = folder
        self.driver = driver
        # Each file is mounted by itself, so containers need no access to the folder.
        make_private_folder(folder)

    def write(self, uid: str, request: str, data: bytes) -> None:
        """Write the file of a request. Raises StorageError."""
        # Every user of a container may read it.
        write_atomically(self._path(uid, request), data, 0o644)

    def has(self, uid: str, request: str) -> bool:
        """Whether the file of a request exists."""
        return os.access(self._path(uid, request), os.F_OK)

    def remove(self, uid: str, request: str) -> None:
        """Remove the file of a request if it exists. Raises StorageError."""
        remove(self._path(uid, request))

    def remove_all(self, uid: str) -> None:
        """Remove all files of a claim. Raises StorageError."""
        for name in self._names():
            if claim_of_metadata_file(name) == uid:
                remove(f"{self.folder}/{name}")

    def uids(self) -> tuple[str, ...]:
        """The claims that have a file here, sorted. Raises StorageError."""
        return tuple(sorted({uid for name in self._names() if (uid := claim_of_metadata_file(name))}))

    def _names(self) -> list[str]:
        with storage_errors(self.folder, "listing"):
            return [name for name in os.listdir(self.folder) if not name.startswith(TEMPORARY_PREFIX)]  # noqa: PTH208 - text

    def _path(self, uid: str, request: str) -> str:
        return f"{self.folder}/{metadata_file_name(uid, request)}"


def requests_of(entry: Entry) -> dict[str, tuple[HeldDevice, ...]]:
    """The devices of each request that gets a file, by the request without its subrequest."""
    found: dict[str, tuple[HeldDevice, ...]] = {}
    # The path in the container has the claim's name, so there is no file without one. Containers of a claim
    # that another driver prepared read the files of that driver.
    if not entry.is_named or entry.is_taken_over:
        return found
    for held in entry.devices:
        request = held.request.partition("/")[0]
        if _LABEL.fullmatch(request):
            found[request] = (*found.get(request, ()), held)
    return found


def possible_requests(entry: Entry) -> frozenset[str]:
    """The requests that may have files, whatever version of the plugin prepared the claim."""
    requests = {held.request.partition("/")[0] for held in entry.devices}
    return frozenset(request for request in requests if _LABEL.fullmatch(request))


def pod_claim_name(entry: Entry) -> str:
    """The pod's name for the claim; empty if no template made the claim."""
    # The name comes from an annotation, which the author of a claim can set to anything, ../.. for example.
    # It becomes part of a path in the container, so only a valid name is used.
    name = entry.pod_claim_name
    return name if _LABEL.fullmatch(name) else ""


def metadata_mounts(entry: Entry, folder: Path, driver: str = DRIVER_NAME) -> dict[str, CdiMount]:
    """The mounts of the files in ``folder``, by the CDI device that they are an edit of."""
    # A container may use a single request of a claim, and then gets all devices of that request. So each file
    # is mounted by the first device of its request.
    return {
        devices[0].cdi_device: CdiMount(
            f"{folder}/{metadata_file_name(entry.uid, request)}",
            f"{CONTAINER_FOLDER}/{request_path(entry, request)}/{driver}-metadata.json",
            is_writable=False,
        )
        for request, devices in requests_of(entry).items()
    }


def request_path(entry: Entry, request: str) -> str:
    """The folder of a request's file below CONTAINER_FOLDER; its pod knows the request by no other name."""
    template = pod_claim_name(entry)
    claim = f"resourceclaimtemplates/{template}" if template else f"resourceclaims/{entry.name}"
    return f"{claim}/{request.partition('/')[0]}"
