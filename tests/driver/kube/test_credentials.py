"""Where the API server and the credentials come from, and what is said when they cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driver.errors import ConfigError
from driver.kube.client import KubeClient
from driver.kube.errors import Unauthorized
from driver.kube.paths import NODES
from envtest.embedded.server import EmbeddedApiServer
from tests.driver.kube.kubeconfigs import written_kubeconfig


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


def test_a_token_file_that_went_away_is_an_error_that_passes(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    server.gate.admin_bearer = "first"
    client = KubeClient.connect(written_kubeconfig(tmp_path / "config", server.url, {"tokenFile": "token"}))
    token.unlink()
    server.gate.admin_bearer = "second"

    with pytest.raises(Unauthorized, match="token") as caught:
        client.get(NODES)

    assert caught.value.retryable


def test_an_exec_plugin_gives_the_token(server: EmbeddedApiServer, tmp_path: Path) -> None:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "made"},
    }
    (tmp_path / "answer").write_text(json.dumps(answer))
    plugin = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "cat",
            "args": [str(tmp_path / "answer")],
        }
    }
    server.gate.admin_bearer = "made"

    client = KubeClient.connect(written_kubeconfig(tmp_path / "config", server.url, plugin))

    assert client.get(NODES)["kind"] == "NodeList"


def test_an_exec_plugin_that_fails_is_an_error_and_no_anonymous_client(tmp_path: Path) -> None:
    plugin = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}}

    with pytest.raises(ConfigError, match="exec plugin"):
        KubeClient.connect(written_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", plugin))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "- a list",
        "just words",
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
