"""Kubernetes' own library reads the metadata of every device that is published, and finds nothing wrong."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from driver.kinds.registry import KINDS
from kubeletplugin.claims.metadata import document
from tests.clusters import Object, go_programs
from tests.deviceclasses.published_nodes import of_machine
from tests.gpus import known_machines
from tests.kubeletplugin.claims.metadata.told import mounts
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.held import held_kinds
from tests.kubeletplugin.share_node import config
from tests.plugin import ClaimRef, HeldDevice, MetadataClaim, MetadataDevice, device_attributes

VERSIONS = ["v1beta1", "v1alpha1"]


def read(*files: Path) -> list[Object]:
    """What the library reads of each file."""
    program = go_programs("device-metadata") / "read-metadata"
    done = subprocess.run([program, *files], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["Versions"] for one in found] == [VERSIONS] * len(files)
    return [one["Told"] for one in found]


def told_of(published: Mapping[str, Any]) -> MetadataDevice:
    """A device of a slice as a claim's metadata tells it."""
    name = KINDS.parse(published["name"])
    assert name is not None
    pci = "" if name.pci is None else str(name.pci)
    held = HeldDevice("gpu", "p", published["name"], pci, "", "u-d", kind=name.kind.word)
    attributes = device_attributes(held, held_kinds().of(held), published["attributes"])
    return MetadataDevice("node-a/gpu.nvidia.com", published["name"], attributes)


@pytest.mark.parametrize("machine", sorted(known_machines()))
def test_everything_that_a_machine_may_publish_can_be_told(machine: str, tmp_path: Path) -> None:
    devices = of_machine(machine)
    claim = MetadataClaim("team", "vm-gpus-x7k2p", "0f5b2a52-6b35-4d0e-9d4d-6d0d8d2f6c11", "gpus")
    files = [tmp_path / f"{index}.json" for index in range(len(devices))]
    for file, device in zip(files, devices, strict=True):
        file.write_bytes(document(claim, "gpu/sub", [told_of(device)]))

    for found, device in zip(read(*files), devices, strict=True):
        (request,) = found["Requests"]
        assert (found["PodClaimName"], request["Name"]) == ("gpus", "gpu/sub")
        (one,) = request["Devices"]
        assert one["Name"] == device["name"]
        assert device["attributes"].keys() <= one["Attributes"].keys()


def claims(node: FakeNode) -> dict[str, ClaimRef]:
    """A claim of each way to hold devices."""
    named = node.claim("named", 0, 1)
    template = node.claim("template", 2)
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpus"}
    node.api[template.namespace, template.name]["metadata"]["annotations"] = annotations
    mps = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}}
    return {
        "whole": named,
        "of a template": template,
        "partitions": node.claim_devices(
            "cut", node.partition(3, "1g.10gb", 6), node.partition(3, "3g.40gb", 0)
        ),
        "looking on": node.claim("admin", 0, admin=True),
        "a time-slice": node.claim_shares("sliced", node.shared("ts-4", 4)),
        "an MPS share": node.claim_shares("mps", node.shared("mps-4", 5)),
        "shared by its pods": node.claim("own", 6, config=config(mps)),
    }


def test_what_prepare_writes_is_read_by_the_library(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "hgx-h100")
    for word, ref in claims(node).items():
        node.prepare(ref)
        told = read(*mounts(node, ref).values())
        assert told, word
        for found in told:
            assert (found["name"], found["namespace"], found["uid"]) == (ref.name, ref.namespace, ref.uid)
            ((device,),) = (request["Devices"] for request in found["Requests"])
            assert device["Attributes"]["uuid"]["string"].startswith(
                "MIG-" if word == "partitions" else "GPU-"
            )
    node.stop()
