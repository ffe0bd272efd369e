"""A scenario that needs metrics can ask the plugin of each node through the API server, as on a cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from envtest.cluster import DRIVER_NAMESPACE
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.__main__ import commands
from gpuctl.top.usage import PODS, metrics_path
from tests.eventually import eventually
from tests.tools.scenarios.kubernetes_binaries import pretend_binaries
from tools.scenarios.description import Node, Wanted
from tools.scenarios.places.place import built_place
from tools.scenarios.programs import MACHINES_VARIABLE

USED = re.compile(r"^gpu_dra_gpu_memory_used_bytes\{.*\} (\S+)$", re.MULTILINE)
USED_BYTES = 5 * 2**30


def test_what_a_gpu_is_said_to_use_is_told_by_the_plugin_of_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_binaries(tmp_path / "assets", monkeypatch)
    wanted = Wanted((Node("t4"), Node("t4")), "version: v1\n", frozenset({"metrics"}))

    with built_place(wanted, "embedded") as place:
        assert place.cluster is not None
        api = place.cluster.api
        pods = api.list_objects(f"/api/v1/namespaces/{DRIVER_NAMESPACE}/pods", labelSelector=PODS)
        machines = json.loads(Path(place.environment[MACHINES_VARIABLE]).read_text())
        FakeMachine.open(machines["node-1"]["nvml"]).use(0, used_bytes=USED_BYTES)

        def used() -> dict[str, list[float]]:
            """What the plugins say, once each has looked at its GPU."""
            texts = {pod["spec"]["nodeName"]: api.text(str(metrics_path(pod))) for pod in pods}
            return {node: [float(number) for number in USED.findall(text)] for node, text in texts.items()}

        told = eventually("each plugin has looked", used, lambda found: all(found.values()))
        top = CliRunner().invoke(commands, ["top", "--kubeconfig", str(place.cluster.admin), "-o", "json"])

    assert told == {"node-0": [0], "node-1": [USED_BYTES]}
    assert json.loads(top.output).get("lacking", []) == []
