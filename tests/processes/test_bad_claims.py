"""What the kubelet and the user are told of claims that cannot be prepared, while others go on."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from proto import dra_v1_pb2 as v1
from tests.eventually import eventually
from tests.kubeletplugin.fake_roots import bind_again
from tests.processes.node import Node

GPU_CONFIG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
NOTHING_RUNS = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 0}}


def refused_beside_a_good_one(node: Node, bad: v1.Claim, *words: str) -> str:
    """The error of the bad claim, asked for in one call with a good one that is prepared all the same."""
    good = node.claim("good", node.gpus[7])
    with node.plugin() as plugin:
        prepared, refused = node.prepare(good, bad)

        assert prepared.error == ""
        assert len(prepared.cdi_devices) == 1
        assert refused.cdi_devices == ()
        for word in words:
            assert word in refused.error
        node.wait_warning(bad, *words)
        failure = plugin.wait_for("operation failed", uid=bad.uid)
        assert failure["error"] == refused.error
        assert [path.name for path in node.cdi.iterdir()] == [node.spec(good).name]
        assert node.unprepare(bad) == [""]
        assert plugin.stop() == 0
    return refused.error


def test_a_claim_that_is_missing_is_named(node: Node) -> None:
    gone = v1.Claim(namespace="team", name="gone", uid=str(uuid.uuid4()))

    error = refused_beside_a_good_one(node, gone, "claim team/gone does not exist", "delete the pod")

    assert "(permanent)" in error


def test_a_claim_that_was_replaced_is_told_with_both_uids(node: Node) -> None:
    new = node.claim("train", node.gpus[0])
    old = v1.Claim(namespace="team", name="train", uid=str(uuid.uuid4()))

    refused_beside_a_good_one(
        node, old, "claim team/train", old.uid, new.uid, "was deleted and created again", "delete the pod"
    )


def test_a_claim_that_is_not_allocated_may_be_asked_for_again(node: Node) -> None:
    claim = node.claim("early")

    error = refused_beside_a_good_one(
        node, claim, "claim team/early is not allocated", "wait for the scheduler"
    )

    assert "(retryable)" in error


def test_a_device_name_that_is_none_of_ours_is_named(node: Node) -> None:
    claim = node.claim("odd", "../../etc/passwd", unchecked=True)

    refused_beside_a_good_one(node, claim, "../../etc/passwd", "team/odd", "delete the pod")


def test_a_gpu_that_the_node_does_not_have_is_named(node: Node) -> None:
    claim = node.claim("odd", "gpu-0000-77-00-0")

    refused_beside_a_good_one(node, claim, "0000:77:00.0", "NOT_FOUND", "check that the GPU")


def test_a_device_of_another_node_is_named_with_both_pools(node: Node) -> None:
    claim = node.claim("stray", node.gpus[0], pool="node-b/gpu.nvidia.com")

    refused_beside_a_good_one(node, claim, "pool node-b/gpu.nvidia.com", "pool is node-a/gpu.nvidia.com")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**GPU_CONFIG, "frequency": 1}, ["frequency: unknown field"]),
        ({**GPU_CONFIG, "apiVersion": "v9"}, ["apiVersion: must be one of resource.nvidia.com/v1beta1"]),
        ({"sharing": []}, ["apiVersion: is required", "kind: is required", "sharing: must be an object"]),
        ("text", ["parameters: must be an object"]),
        ({**GPU_CONFIG, "sharing": NOTHING_RUNS}, ["0 percent of the threads", "set defaultActiveThread"]),
    ],
    ids=["unknown field", "unknown version", "many errors", "no object", "a limit that lets nothing run"],
)
def test_a_malformed_opaque_configuration_is_told_field_by_field(
    node: Node, config: Any, words: list[str]
) -> None:
    claim = node.claim("tuned", node.gpus[0], config=config, unchecked=True)

    refused_beside_a_good_one(node, claim, "gpu-0", *words)


def test_a_malformed_configuration_is_told_with_its_claim(node: Node) -> None:
    claim = node.claim("tuned", node.gpus[0], config={})

    refused_beside_a_good_one(
        node, claim, "claim team/tuned, request gpu-0: the opaque configuration is malformed"
    )


def until_refused(node: Node, claim: v1.Claim) -> str:
    """Prepare and unprepare until the plugin has seen the slices, and refuses; what it then says."""

    def error() -> str:
        said = node.prepare(claim)[0].error
        assert said or node.unprepare(claim) == [""]
        return said

    return eventually("the claim is refused", error)


def test_a_prepared_claim_whose_board_was_exchanged_is_not_answered_from_memory(node: Node) -> None:
    claim = node.claim("train", node.gpus[3])
    with node.plugin():
        assert node.prepare(claim)[0].error == ""
        prepared_as = node.machine.uuid(node.machine.pci(3))
        found = node.machine.replace_board(3)
        bind_again(node.sysfs, node.machine.pci(3))

        (answer,) = node.prepare(claim)

        assert f"was published as {prepared_as}, but its place now has {found}" in answer.error
        assert node.unprepare(claim) == [""]


def test_a_board_that_was_exchanged_is_told_with_both_uuids(node: Node) -> None:
    with node.plugin() as plugin, node.controller() as controller:
        node.publishes(8)
        published = node.machine.uuid(node.machine.pci(3))
        kept = node.claim("kept", node.gpus[2])
        assert node.prepare(kept)[0].error == ""
        found = node.machine.replace_board(3)
        claim = node.claim("train", node.gpus[3])

        error = until_refused(node, claim)

        assert f"device {node.gpus[3]} was published as {published}, but its place now has {found}" in error
        assert "delete the pod" in error
        node.wait_warning(claim, published, found)
        assert node.prepare(kept)[0].error == ""
        assert (plugin.stop(), controller.stop()) == (0, 0)


def test_a_uid_that_is_no_uid_never_becomes_a_path(node: Node) -> None:
    before = set(node.folder.rglob("*"))
    with node.plugin():
        bad = v1.Claim(namespace="team", name="x", uid="../../escape")

        (answer,) = node.prepare(bad)

        assert "UID" in answer.error
        assert not [path for path in set(node.folder.rglob("*")) - before if "escape" in path.name]
