"""The plugin told to retire cleans its node, says when that is done, and why it is not."""

from __future__ import annotations

import http.client
import re
from typing import TYPE_CHECKING

from gpuctl.demo.brisk import BRISK
from tests.processes.process import DriverProcess

if TYPE_CHECKING:
    from tests.processes.node import Node


def retiring(node: Node) -> DriverProcess:
    """The process that cleans the node, with its probes at a free port."""
    flags = node.plugin_flags(health_addr="127.0.0.1:0")
    return DriverProcess(*BRISK, "kubeletplugin", *flags, "--retire")


def ready(process: DriverProcess) -> tuple[int, str]:
    """What its readiness probe answers."""
    port = process.wait_for("serving probes")["port"]
    connection = http.client.HTTPConnection("127.0.0.1", int(str(port)), timeout=10)
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_a_node_without_claims_is_clean_and_the_process_stays_until_it_is_ended(node: Node) -> None:
    claim = node.claim("train", node.gpus[0])
    with node.plugin() as plugin:
        node.prepare(claim)
        node.unprepare(claim)
        assert plugin.stop() == 0
    assert node.data.is_dir()

    with retiring(node) as process:
        process.wait_for("node is clean")
        assert ready(process) == (200, "ok\n")
        assert process.stop() == 0

    assert not node.data.exists()
    assert list(node.registry.iterdir()) == []
    assert list(node.cdi.iterdir()) == []


def test_a_node_with_a_prepared_claim_stays_as_it_is_and_the_claim_is_named(node: Node) -> None:
    claim = node.claim("train", node.gpus[0])
    with node.plugin() as plugin:
        node.prepare(claim)
        assert plugin.stop() == 0
    specs = [path.read_bytes() for path in node.cdi.iterdir()]

    with retiring(node) as process:
        process.wait_for("cannot clean the node yet")
        status, why = ready(process)
        assert status == 503
        assert re.match(r"this node still holds devices for \S+/train \(prepared\)", why)
        assert process.exit_code() == 1
        assert process.text.splitlines()[-1].startswith("Error: this node still holds devices for")

    assert [path.read_bytes() for path in node.cdi.iterdir()] == specs
    with node.plugin() as plugin:
        assert node.unprepare(claim) == [""]
        assert plugin.stop() == 0
