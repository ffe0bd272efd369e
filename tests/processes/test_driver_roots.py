"""The processes find the driver by themselves, wait for one that comes late, and say where they looked."""

import json
from pathlib import Path
from typing import Any

from proto import dra_v1_pb2 as v1
from tests.gpus import build_driver_root
from tests.processes.node import Node

ROOT = "/run/nvidia/driver"


def install(node: Node, host: Path) -> None:
    """Have a driver container bring the driver."""
    node.machine.driver_back()
    root = host / ROOT.lstrip("/")
    root.mkdir(parents=True, exist_ok=True)
    build_driver_root(root, node.machine)


def edits(node: Node, claim: v1.Claim) -> Any:
    """What containers of the claim get."""
    return json.loads(node.spec(claim).read_text())["containerEdits"]


def test_a_driver_that_comes_late_is_published_and_prepared_with_the_hosts_paths(node: Node) -> None:
    host = node.folder / "host"
    host.mkdir()
    node.machine.driver_gone()
    probed = {"driver_root": "auto", "host_root": str(host)}
    claim = node.claim("train", node.gpus[0])

    with node.plugin(**probed) as plugin, node.controller(**probed) as controller:
        for process in (plugin, controller):
            told = process.wait_for("driver root", used=None)
            assert told["passed_over"][ROOT] == "the folder does not exist"
        controller.wait_for("there is no NVIDIA driver on this node, so new containers get no GPU")
        (answer,) = node.prepare(claim, within_seconds=3)
        assert "(retryable)" in answer.error

        install(node, host)

        for process in (plugin, controller):
            process.wait_for("driver root", used=ROOT)
        node.publishes(8, controller)
        assert node.prepare(claim)[0].error == ""
        assert (plugin.stop(), controller.stop()) == (0, 0)

    libraries = [one for one in edits(node, claim)["mounts"] if ".so.5" in one["containerPath"]]
    assert [one["hostPath"] for one in libraries] == [f"{ROOT}{one['containerPath']}" for one in libraries]
    nodes = {one["path"]: one["hostPath"] for one in edits(node, claim)["deviceNodes"]}
    assert nodes["/dev/nvidiactl"] == f"{ROOT}/dev/nvidiactl"
    assert str(host) not in node.spec(claim).read_text()
