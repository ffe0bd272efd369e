"""Says where the metadata files of a claim lie, on the node and in its containers: pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from driver.devices.names import DRIVER_NAME
from kubeletplugin.claims.cdi.spec import CdiMount
from kubeletplugin.kubelet.wire.names import metadata_file_name

if TYPE_CHECKING:
    from kubeletplugin.claims.journal.entry import Entry, HeldDevice

CONTAINER_FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
"""Where containers look, as ``ContainerDir`` of k8s.io/dynamic-resource-allocation/api/metadata has it."""

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def requests_of(entry: Entry) -> dict[str, tuple[HeldDevice, ...]]:
    """The devices of each request that gets a file, by the request without its subrequest.

    None of a claim whose name is not known, or that another driver prepared: its containers are told
    nothing, or read what that driver has laid there.
    """
    found: dict[str, tuple[HeldDevice, ...]] = {}
    if not entry.is_named or entry.is_taken_over:
        return found
    for held in entry.devices:
        request = held.request.partition("/")[0]
        if _LABEL.fullmatch(request):
            found[request] = (*found.get(request, ()), held)
    return found


def possible_requests(entry: Entry) -> frozenset[str]:
    """The requests that may have files, also where those that prepared the claim knew less of it, or more."""
    requests = {held.request.partition("/")[0] for held in entry.devices}
    return frozenset(request for request in requests if _LABEL.fullmatch(request))


def pod_claim_name(entry: Entry) -> str:
    """What the claim's pod calls it; empty for a claim that no template made.

    It comes from an annotation, which whoever makes a claim by hand may set to anything: it becomes part of
    a path, so what cannot be a name in a pod is none.
    """
    name = entry.pod_claim_name
    return name if _LABEL.fullmatch(name) else ""


def metadata_mounts(entry: Entry, folder: Path) -> dict[str, CdiMount]:
    """What brings the files in ``folder`` into containers, by the CDI device of which it is an edit.

    A container may use one request of a claim alone, and gets all devices of it: the first brings the file.
    """
    template = pod_claim_name(entry)
    claim = f"resourceclaimtemplates/{template}" if template else f"resourceclaims/{entry.name}"
    return {
        devices[0].cdi_device: CdiMount(
            str(folder / metadata_file_name(entry.uid, request)),
            f"{CONTAINER_FOLDER}/{claim}/{request}/{DRIVER_NAME}-metadata.json",
            is_writable=False,
        )
        for request, devices in requests_of(entry).items()
    }
