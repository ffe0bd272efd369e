"""The controller as a process: its flags, its errors and exit codes, and its whole job once."""

import signal
import subprocess
import sys
from pathlib import Path

from driver.kube.paths import NODES
from proto import node_state_v1_pb2 as v1
from tests.clusters import BRISK, EmbeddedApiServer, KubeClient, object_path
from tests.controller.fake_plugin import FakePlugin
from tests.eventually import eventually

GROUP = "resource.k8s.io"
REPOSITORY = Path(__file__).parents[2]


POOLS = """
version: v1
pools:
  - name: cut
    nodeSelector: {matchLabels: {pool: cut}}
    rules: [{mig: {layout: all-balanced}}]
  - name: broken
    nodeSelector: {matchLabels: {pool: broken}}
    rules: [{offer: nothing}]
"""


def test_the_labels_of_the_node_choose_its_pool_without_a_restart(
    server: EmbeddedApiServer, client: KubeClient, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(POOLS)

    def relabel(pool: str) -> None:
        labels = {"metadata": {"labels": {"pool": pool}}}
        client.patch(object_path(NODES, "node-a"), labels, "application/merge-patch+json")

    def devices() -> int:
        return sum(len(item["spec"].get("devices", ())) for item in server.objects("resourceslices", GROUP))

    def told() -> list[str]:
        events = server.objects("events", "")
        return [one["message"] for one in events if one["reason"] == "NodeConfigurationWrong"]

    with FakePlugin(tmp_path / "dra.sock", state=v1.State()):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", *BRISK, "controller", "--node-name=node-a", "--nvml=fake:hgx-h100"),
                *(
                    f"--kubeconfig={tmp_path}/kubeconfig",
                    f"--plugin-data-dir={tmp_path}",
                    f"--config={rules}",
                ),
            ],
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            eventually("the GPUs are published", devices, lambda count: count == 8)
            relabel("cut")
            eventually("their partitions are", devices, lambda count: count == 32)
            relabel("broken")
            eventually("an event tells of the broken group", told)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                errors = process.communicate(timeout=30)[1]
            finally:
                process.kill()
                process.communicate()

    assert process.returncode == 0, errors
    assert devices() == 32
    assert "pools[1].rules[0].offer" in told()[0]
