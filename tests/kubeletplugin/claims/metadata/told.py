"""Reads the metadata files of a fake node as a reader in a container does, through the claim's CDI spec."""

import json
from pathlib import Path

from tests.clusters import Object
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef

FOLDER = "/var/run/kubernetes.io/dra-device-attributes"


def mounts(node: FakeNode, ref: ClaimRef) -> dict[str, Path]:
    """The metadata files that the claim's spec mounts: the path in the container, and the one on the node."""
    spec = json.loads(node.spec_path(ref).read_text())
    found = [mount for device in spec["devices"] for mount in device["containerEdits"].get("mounts", ())]
    return {
        one["containerPath"]: Path(one["hostPath"])
        for one in found
        if one["containerPath"].startswith(FOLDER)
    }


def documents(data: str) -> list[Object]:
    """The objects of a metadata file, in their order."""
    return [json.loads(line) for line in data.splitlines()]


def told(node: FakeNode, ref: ClaimRef, where: str) -> Object:
    """The newest object in the file at this path below the folder that containers know."""
    return documents(mounts(node, ref)[f"{FOLDER}/{where}"].read_text())[0]


def files(node: FakeNode) -> list[str]:
    """The metadata files on the node."""
    return sorted(path.name for path in (node.boot_files / "metadata").iterdir())
