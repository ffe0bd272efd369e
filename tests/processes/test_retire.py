"""The plugin told to retire cleans its node, says when that is done, and why it is not."""

import re

from tests.clusters import BRISK
from tests.processes.node import Node
from tests.processes.process import DriverProcess
from tests.processes.test_probes import OK, asked, port_of


def retiring(node: Node) -> DriverProcess:
    """The process that cleans the node, with its probes at a free port."""
    flags = node.plugin_flags(health_addr="127.0.0.1:0")
    return DriverProcess(*BRISK, "kubeletplugin", *flags, "--retire")


def test_a_node_is_clean_once_its_last_claim_has_ended_which_is_named_until_then(node: Node) -> None:
    claim = node.claim("train", node.gpus[0])
    with node.plugin() as plugin:
        node.prepare(claim)
        assert plugin.stop() == 0
    specs = [path.read_bytes() for path in node.cdi.iterdir()]

    with retiring(node) as process:
        process.wait_for("cannot clean the node yet")
        status, why = asked(port_of(process), "/readyz")
        assert status == 503
        assert re.match(r"this node still holds devices for \S+/train \(prepared\)", why)
        assert process.exit_code() == 1
        assert process.text.splitlines()[-1].startswith("Error: this node still holds devices for")

    assert [path.read_bytes() for path in node.cdi.iterdir()] == specs
    with node.plugin() as plugin:
        assert node.unprepare(claim) == [""]
        assert plugin.stop() == 0
    with retiring(node) as process:
        process.wait_for("node is clean")
        assert asked(port_of(process), "/readyz") == OK
        assert process.stop() == 0

    assert not node.data.exists()
    assert [*node.registry.iterdir(), *node.cdi.iterdir()] == []
