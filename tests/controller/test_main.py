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
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
REPOSITORY = Path(__file__).parents[2]


def ended(process: subprocess.Popen[str], timeout_seconds: float) -> str:
    """What the controller wrote to stderr until its end, which has to come in time."""
    try:
        return process.communicate(timeout=timeout_seconds)[1]
    finally:
        process.kill()
        process.communicate()


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
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(POOLS)
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    client = KubeClient.connect(kubeconfig)

    def relabel(pool: str) -> None:
        client.patch(
            object_path(NODES, "node-a"),
            {"metadata": {"labels": {"pool": pool}}},
            "application/merge-patch+json",
        )

    def devices() -> int:
        return sum(len(item["spec"].get("devices", ())) for item in server.objects("resourceslices", GROUP))

    def told() -> list[str]:
        return [
            event["message"]
            for event in server.objects("events", "")
            if event["reason"] == "NodeConfigurationWrong"
        ]

    with FakePlugin(tmp_path / "dra.sock", state=v1.State()):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", *BRISK, "controller", "--node-name=node-a", "--nvml=fake:hgx-h100"),
                *(f"--kubeconfig={kubeconfig}", f"--plugin-data-dir={tmp_path}", f"--config={rules}"),
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
            client.close()
            process.send_signal(signal.SIGTERM)
            errors = ended(process, 30)

    assert process.returncode == 0, errors
    assert devices() == 32
    assert "pools[1].rules[0].offer" in told()[0]
