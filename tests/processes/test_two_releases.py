"""Two releases of the driver on one node: both serve as in an update, nobody fights, and people are told."""

import uuid
from contextlib import ExitStack

from tests.processes.node import Node
from tests.processes.process import DriverProcess


def written(node: Node) -> int:
    """How many writes of slices there were."""
    return sum(node.server.count(verb, "resourceslices") for verb in ("create", "update", "delete"))


def test_both_serve_and_publish_the_same_and_the_node_tells_of_it(node: Node) -> None:
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    with ExitStack() as stack:
        stack.enter_context(node.plugin(pod_uid=first))
        one = stack.enter_context(DriverProcess("tests.processes.impatient", *node.controller_flags()))
        node.publishes(8, one)
        stack.enter_context(node.plugin(pod_uid=second))
        other = stack.enter_context(DriverProcess("tests.processes.impatient", *node.controller_flags()))
        for controller in (one, other):
            told = controller.wait_for("several kubelet plugins serve on this node")
            assert "two releases of the driver are installed" in told["error"]
        node.wait_event("TwoInstallations")
        claim = node.claim("train", node.gpus[0])
        assert node.prepare(claim, pod_uid=first)[0].error == ""
        assert node.prepare(claim, pod_uid=second)[0].error == ""
        assert node.unprepare(claim, pod_uid=second) == [""]
        assert not node.spec(claim).exists()
        assert (one.stop(), other.stop()) == (0, 0)
    assert written(node) == len(node.slices())
