"""What is read of a cluster over the API server, and what becomes of refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envtest.embedded.server import ALWAYS
from gpuctl.doctor.outside.probes import GATES, dropped_fields, read_features
from gpuctl.doctor.outside.reading import driver_accounts, look_at_cluster
from tests.clusters import EmbeddedApiServer, KubeClient, Unread
from tests.gpuctl.doctor.clusters import daemon_set, driver_pod, pod, webhook
from tests.gpus import ConfigError

ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
METRICS = """\
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="DRADeviceTaints",stage="BETA"} 1
kubernetes_feature_enabled{name="DRAPartitionableDevices",stage="BETA"} 0
kubernetes_feature_enabled{name="AnyGA",stage=""} 1
other{name="x"} 1
"""


@pytest.fixture
def client(server: EmbeddedApiServer, tmp_path: Path) -> KubeClient:
    return KubeClient.connect(server.write_kubeconfig(tmp_path / "config"), user_agent="gpuctl")


def test_a_dry_run_stores_nothing_and_tells_what_would_be_stored(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    assert dropped_fields(client) == frozenset()
    assert server.objects("resourceslices", "resource.k8s.io") == []


@pytest.mark.parametrize("gate", sorted(set(GATES.values())))
def test_fields_of_a_gate_that_is_off_are_dropped(
    server: EmbeddedApiServer, client: KubeClient, gate: str
) -> None:
    server.verbs.disabled_gates = frozenset({gate})

    assert dropped_fields(client) == {field for field, needed in GATES.items() if needed == gate}


def test_feature_gates_are_read_from_metrics() -> None:
    assert read_features(METRICS) == {
        "DRADeviceTaints": True,
        "DRAPartitionableDevices": False,
        "AnyGA": True,
    }


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/api/v1/nodes", lambda seen: seen.nodes),
        ("/resourceslices", lambda seen: seen.slices),
        ("/api/v1/pods", lambda seen: seen.pods),
        ("/api/v1/events", lambda seen: seen.events),
        ("/daemonsets", lambda seen: seen.daemon_sets),
    ],
)
def test_what_may_not_be_listed_stays_unread(
    server: EmbeddedApiServer, client: KubeClient, path: str, read: Callable[[Any], Any]
) -> None:
    server.fail("list", path, code=403, times=ALWAYS)

    unread = read(look_at_cluster(client, None))

    assert isinstance(unread, Unread)
    assert "this user may not list" in unread.why


def test_a_webhook_that_is_not_called_has_not_denied(server: EmbeddedApiServer, client: KubeClient) -> None:
    server.create(ADMISSION, webhook("x"))

    seen = look_at_cluster(client, None)

    assert seen.webhook_answer == "the claim would have been stored"
    assert server.objects("resourceclaims", "resource.k8s.io") == []


def test_a_node_that_is_not_there_is_an_error(server: EmbeddedApiServer, client: KubeClient) -> None:
    server.create("/api/v1/nodes", {"metadata": {"name": "node-a"}})

    with pytest.raises(ConfigError, match="no node node-b"):
        look_at_cluster(client, "node-b")
    assert look_at_cluster(client, "node-a").node == "node-a"


def test_accounts_are_those_of_the_drivers_pods_wherever_it_is_installed() -> None:
    elsewhere = daemon_set("controller", namespace="gpu")
    elsewhere["spec"]["template"]["spec"]["serviceAccountName"] = "own-name"

    found = driver_accounts((elsewhere,), (driver_pod("kubeletplugin"), pod("other")))

    assert found["controller"] == ("gpu", "own-name")
    assert found["kubeletplugin"] == ("gpu-dra", "gpu-dra-kubeletplugin")
