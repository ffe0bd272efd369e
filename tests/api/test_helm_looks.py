"""What helm finds in the cluster decides what it installs: a certificate is kept, a class has to be there."""

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.real.api_server import api_server_alone
from tests.clusters import Object, RealApiServer, find_assets
from tools.testbed.chart import CHART, HELMS, RELEASE, HelmRefused, helm_in, install_chart

PAIR = "/api/v1/namespaces/gpu-dra/secrets/gpu-dra-webhook-tls"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpu-dra-webhook"
WEBHOOK: Object = {"webhook": {"enabled": True}}


@pytest.fixture
def cluster(kubernetes: str) -> Iterator[RealApiServer]:
    """An API server of its own, in which nothing is installed."""
    with api_server_alone(find_assets(kubernetes)) as server:
        yield server


def authority(cluster: RealApiServer) -> str:
    """Whom the API server believes."""
    (webhook,) = cluster.api.get(REGISTRATION)["webhooks"]
    return str(webhook["clientConfig"]["caBundle"])


def shake_hands(pair: Object, folder: Path) -> None:
    """A server with the pair is believed by a client that knows the authority; raises SSLError."""
    for name, content in pair.items():
        (folder / name).write_bytes(base64.b64decode(content))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    asking = ssl.create_default_context(cafile=folder / "ca.crt")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = asking.wrap_bio(to_client, to_server, server_hostname="gpu-dra-webhook.gpu-dra.svc")
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.version() == "TLSv1.3"


def test_a_certificate_that_helm_made_is_kept_until_it_is_old(cluster: RealApiServer, tmp_path: Path) -> None:
    three, four = HELMS

    install_chart(cluster, WEBHOOK, program=three)
    made = cluster.api.get(PAIR)["data"]
    shake_hands(made, tmp_path)
    assert authority(cluster) == made["ca.crt"]

    install_chart(cluster, {**WEBHOOK, "logLevel": "debug"}, program=four)
    assert cluster.api.get(PAIR)["data"] == made
    assert authority(cluster) == made["ca.crt"]

    cluster.api.patch(PAIR, {"metadata": {"annotations": {"gpu.nvidia.com/renew-after": "1"}}})
    install_chart(cluster, WEBHOOK, program=three)
    renewed = cluster.api.get(PAIR)["data"]
    assert renewed["tls.key"] != made["tls.key"]
    shake_hands(renewed, tmp_path)
    assert authority(cluster) == renewed["ca.crt"]

    absent: Object = {"priorityClassName": "gpu-nodes"}
    with pytest.raises(HelmRefused, match="the cluster has no PriorityClass gpu-nodes"):
        install_chart(cluster, absent)
    cluster.api.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "gpu-nodes"},
            "value": 1000,
        }
    )
    install_chart(cluster, absent)
    with pytest.raises(HelmRefused, match="invalid ownership metadata"):
        helm_in(cluster, "install", f"{RELEASE}-too", str(CHART), values={})
