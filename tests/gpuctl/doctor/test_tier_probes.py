"""``gpuctl doctor --probe`` and the Jobs of deploy/examples/probe say what each tier gives."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner

from gpuctl.doctor.outside.reading import look_at_cluster
from gpuctl.doctor.tier_probes import NAME, probe_tiers
from tests.clusters import Cluster, DemoCluster, commands, connect_client, paths, wait_for_list
from tests.gpuctl.doctor.clusters import NAMESPACE, daemon_set

MADE = (paths.pod(namespace=NAMESPACE), paths.resource_claim(namespace=NAMESPACE))


class Installed:
    """The driver on eight H100, with the DaemonSet that says which image it has."""

    def __init__(self, demo: DemoCluster) -> None:
        self.demo = demo
        self.machine = demo._machine  # noqa: SLF001 - what the demo runs on
        self.cluster: Cluster = demo._running.cluster  # noqa: SLF001 - likewise
        labels = {"app": "plugin"}
        made = daemon_set("kubeletplugin")
        made["spec"] |= {"selector": {"matchLabels": labels}}
        made["spec"]["template"]["metadata"] = {"labels": labels}
        # It runs on no node: the driver's processes run beside the cluster.
        made["spec"]["template"]["spec"]["nodeSelector"] = {"runs": "nowhere"}
        self.cluster.api.create({"apiVersion": "apps/v1", **made}, NAMESPACE)

    def left(self) -> list[Any]:
        """The pods and claims of the driver's namespace."""
        return [one for path in MADE for one in self.cluster.api.list_objects(path)]

    def doctor(self) -> dict[str, Any]:
        """By class, what was found."""
        words = ["doctor", "--probe", "-o", "json", "--kubeconfig", str(self.demo.kubeconfig)]
        ran = CliRunner().invoke(commands, words, catch_exceptions=False)
        found = json.loads(ran.stdout)["results"]
        return {one["place"].removeprefix("class/"): one for one in found if one["check"] == "probe"}


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    with closing(DemoCluster("embedded", "hgx-h100")) as demo:
        demo.start(lambda _: None)
        yield Installed(demo)


def test_each_class_that_has_devices_gets_a_line_and_nothing_is_left(installed: Installed) -> None:
    found = installed.doctor()

    assert set(found) == {
        *("gpu.nvidia.com", "large", "mig.nvidia.com", "mig-small", "mig-medium", "mig-large"),
        *("shared-timesliced", "shared-mps", "shared-memory"),
    }
    assert {name: one["message"] for name, one in found.items() if one["status"] != "ok"} == {}
    assert found["large"]["message"].startswith("kept: a whole GPU, NVIDIA H100 80GB HBM3 (GPU-")
    assert found["shared-mps"]["message"].endswith("20276 of 20276 MiB")
    assert installed.left() == []


def test_a_gpu_that_computes_wrongly_fails_the_class(installed: Installed) -> None:
    installed.machine.lie("cuLaunchKernel")
    try:
        found = installed.doctor()["large"]
    finally:
        installed.machine.heal()

    assert found["status"] == "fail"
    assert "NOT KEPT: the kernel computed 65536 of 65536 words wrongly" in found["message"]


def test_the_pod_and_its_claim_go_after_ctrl_c(installed: Installed) -> None:
    client = connect_client(installed.demo.kubeconfig)
    installed.machine.hang("cuInit")
    try:

        def interrupt(_: object) -> None:
            (pod,) = wait_for_list(installed.cluster.api, MADE[0], lambda pods: len(pods) == 1)
            assert pod["metadata"]["name"].startswith(NAME)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            for _ in probe_tiers(
                client, look_at_cluster(client, None), None, lambda _: None, pause=interrupt
            ):
                pass
    finally:
        installed.machine.heal()
        client.close()

    assert installed.left() == []
