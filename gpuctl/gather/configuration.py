"""Reads the node configuration that the driver was installed with, the one ConfigMap that a report holds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from gpuctl.doctor.outside.probes import perhaps
from gpuctl.doctor.outside.seen import Unread
from gpuctl.gather.archive import Member, safe_part
from gpuctl.gather.masking import masked_object
from gpuctl.gather.objects import as_json

if TYPE_CHECKING:
    from driver.kube.client import KubeClient

NAME = "gpu-dra-node-config"


def configuration_members(client: KubeClient, namespaces: tuple[str, ...]) -> Iterator[Member]:
    """The node configuration in each of the driver's namespaces, or why it was not read."""
    for namespace in namespaces:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{NAME}"
        found = perhaps(f"read the ConfigMap {NAME}", partial(client.get, path))
        content = {"unread": found.why} if isinstance(found, Unread) else masked_object(found)
        yield Member(f"objects/node-configuration-{safe_part(namespace)}.json", as_json(content))
