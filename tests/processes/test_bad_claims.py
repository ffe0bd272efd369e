"""What the kubelet and the user are told of claims that cannot be prepared, while others go on."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from proto import dra_v1_pb2 as v1
from tests.eventually import eventually
from tests.processes.node import Node

Made = Callable[[Node], v1.Claim]
BAD: tuple[tuple[Made, tuple[str, ...]], ...] = (
    (
        lambda _: v1.Claim(namespace="team", name="gone", uid=str(uuid.uuid4())),
        ("claim team/gone does not exist", "delete the pod", "(permanent)"),
    ),
    (
        lambda node: node.claim("early"),
        ("claim team/early is not allocated", "wait for the scheduler", "(retryable)"),
    ),
    (
        lambda node: node.claim("odd", "../../etc/passwd", unchecked=True),
        ("../../etc/passwd", "team/odd", "delete the pod"),
    ),
    (
        lambda node: node.claim("missing", "gpu-0000-77-00-0"),
        ("0000:77:00.0", "NOT_FOUND", "check that the GPU"),
    ),
    (
        lambda node: node.claim("tuned", node.gpus[0], config={"sharing": []}, unchecked=True),
        ("claim team/tuned, request gpu-0", "kind: is required", "sharing: must be an object"),
    ),
)
"""Claims that cannot be prepared, and words of what is said of each: one for each kind of answer."""


def test_each_bad_claim_is_told_why_while_a_good_one_is_prepared(node: Node) -> None:
    good, bad = node.claim("good", node.gpus[7]), [made(node) for made, _ in BAD]
    with node.plugin() as plugin:
        prepared, *refused = node.prepare(good, *bad)

        assert (prepared.error, len(prepared.cdi_devices)) == ("", 1)
        for claim, answer, (_, words) in zip(bad, refused, BAD, strict=True):
            assert answer.cdi_devices == ()
            assert [word for word in words if word not in answer.error] == [], answer.error
            node.wait_warning(claim, *words)
            assert plugin.wait_for("operation failed", uid=claim.uid)["error"] == answer.error
        assert [path.name for path in node.cdi.iterdir()] == [node.spec(good).name]
        assert node.unprepare(*bad) == [""] * len(bad)
        assert plugin.stop() == 0


def until_refused(node: Node, claim: v1.Claim) -> str:
    """Prepare and unprepare until the plugin has seen the slices, and refuses; what it then says."""

    def error() -> str:
        said = node.prepare(claim)[0].error
        assert said or node.unprepare(claim) == [""]
        return said

    return eventually("the claim is refused", error)


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
