"""What the kubelet and the user are told of claims that cannot be prepared, while others go on."""

import uuid
from collections.abc import Callable

from proto import dra_v1_pb2 as v1
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
