"""Where the API server and the credentials come from, and what is said when they cannot be used."""

import json
import ssl
from pathlib import Path

import pytest

from driver.kube.credentials import Credentials
from driver.kube.errors import Unauthorized
from driver.kube.paths import NODES
from tests.clusters import EmbeddedApiServer, KubeClient, Unreachable
from tests.driver.kube.kubeconfigs import written_kubeconfig
from tests.driver.kube.raw_server import Conversation, RawServer
from tests.gpus import ConfigError
from tests.openssl import make_certificate

EXEC_API = "client.authentication.k8s.io/v1"


def test_a_token_file_next_to_the_kubeconfig_is_read_again_when_the_token_was_refused(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    server.gate.admin_bearer = "first"
    client = KubeClient.connect(written_kubeconfig(tmp_path / "config", server.url, {"tokenFile": "token"}))
    client.get(NODES)

    token.write_text("second\n")
    server.gate.admin_bearer = "second"
    with pytest.raises(Unauthorized):
        client.get(NODES)

    assert client.get(NODES)["kind"] == "NodeList"

    token.unlink()
    server.gate.admin_bearer = "third"
    with pytest.raises(Unauthorized, match="token") as caught:
        client.get(NODES)
    assert caught.value.retryable


def test_an_exec_plugin_gives_the_token(server: EmbeddedApiServer, tmp_path: Path) -> None:
    answer = {"apiVersion": EXEC_API, "kind": "ExecCredential", "status": {"token": "made"}}
    (tmp_path / "answer").write_text(json.dumps(answer))
    plugin = {"apiVersion": EXEC_API, "command": "cat", "args": [str(tmp_path / "answer")]}
    server.gate.admin_bearer = "made"

    client = KubeClient.connect(written_kubeconfig(tmp_path / "config", server.url, {"exec": plugin}))

    assert client.get(NODES)["kind"] == "NodeList"


def test_an_exec_plugin_that_fails_is_an_error_and_no_anonymous_client(tmp_path: Path) -> None:
    plugin = {"exec": {"apiVersion": EXEC_API, "command": "false"}}

    with pytest.raises(ConfigError, match="exec plugin"):
        KubeClient.connect(written_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", plugin))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "- a list",
        "{not yaml",
        "current-context: c",
        "current-context: c\ncontexts: [{name: d, context: {cluster: k}}]",
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]",
        "current-context: c\ncontexts: 7",
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: 3}]",
        "\x00\x01",
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)

    with pytest.raises(ConfigError, match=str(path)):
        KubeClient.connect(path)


def test_without_a_kubeconfig_outside_of_a_pod_the_flag_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(ConfigError, match="this is not a pod: name one with --kubeconfig"):
        KubeClient.connect(None)


NODE = "/api/v1/nodes/a"


class Cluster:
    """An API server with a certificate, the kubeconfig's file that says whom to believe, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.trusted = folder / "ca.crt"
        self._folder = folder
        self.server = RawServer(answer, self.certified())
        self.trust_the_server()

    def certified(self) -> ssl.SSLContext:
        """Another certificate for the server, signed by itself."""
        names = [str(self._folder / name) for name in ("tls.key", "tls.crt")]
        subject = ("-nodes", "-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1")
        make_certificate(*subject, "-keyout", names[0], "-out", names[1])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(names[1], names[0])
        return context

    def trust_the_server(self) -> None:
        """Write its certificate where the client is told to look, as the kubelet does in a pod."""
        fresh = self._folder / "new.crt"
        fresh.write_bytes((self._folder / "tls.crt").read_bytes())
        fresh.rename(self.trusted)

    def client(self) -> KubeClient:
        """A client by a kubeconfig with a token."""
        server = f"https://{self.server.address}"
        path = self._folder / "kubeconfig"
        written_kubeconfig(path, server, {"token": "t"}, **{"certificate-authority": "ca.crt"})
        return KubeClient(Credentials(path, clock=lambda: self.now), "test")


def answer(asked: Conversation) -> None:
    asked.send_json({"kind": "Node"})


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_a_rotated_authority_is_read_when_the_token_is(cluster: Cluster) -> None:
    with cluster.server:
        client = cluster.client()
        client.get(NODE)
        cluster.server.context = cluster.certified()
        cluster.trust_the_server()
        with pytest.raises(Unreachable):
            client.get(NODE)

        cluster.now += 31

        assert client.get(NODE) == {"kind": "Node"}


@pytest.mark.parametrize("content", [None, b"no certificate"], ids=["gone", "wrong"])
def test_an_authority_that_cannot_be_used_leaves_the_one_before(
    cluster: Cluster, content: bytes | None
) -> None:
    with cluster.server:
        client = cluster.client()
        cluster.trusted.unlink()
        if content is not None:
            cluster.trusted.write_bytes(content)

        cluster.now += 31
        assert client.get(NODE) == {"kind": "Node"}

        cluster.server.context = cluster.certified()
        cluster.trust_the_server()
        cluster.now += 31
        assert client.get(NODE) == {"kind": "Node"}
