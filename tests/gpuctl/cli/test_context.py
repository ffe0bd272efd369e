"""The cluster and the namespace are found where kubectl finds them."""

import json
from pathlib import Path

import pytest

from gpuctl.cli.cluster import find_kubeconfig, find_namespace
from tests.clusters import ClusterView, EmbeddedApiServer
from tests.gpuctl.cli.kubeconfigs import BEARER, kubeconfig


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a kubeconfig, and no $KUBECONFIG."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def test_the_flag_comes_before_the_variable_and_that_before_the_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_kubeconfig(None, None) is None
    in_home = kubeconfig(home / ".kube" / "config")
    assert str(find_kubeconfig(None, None)) == str(in_home)
    monkeypatch.setenv("KUBECONFIG", "/a::/b")
    assert str(find_kubeconfig(None, None)) == "/a:/b"
    assert str(find_kubeconfig(Path("/c"), None)) == "/c"


def test_a_cluster_of_another_file_is_reached_by_its_context(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedApiServer() as server:
        server.gate.admin_bearer = BEARER
        server.create("/api/v1/nodes", {"metadata": {"name": "node-a"}})
        first = kubeconfig(home / "first", "http://127.0.0.1:1", here=None)
        second = home / "second"
        there = {"name": "there", "context": {"cluster": "far", "user": "u"}}
        far = {"name": "far", "cluster": {"server": server.url}}
        second.write_text(json.dumps({"contexts": [there], "clusters": [far]}))
        monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")

        (node,) = ClusterView.connect(None, "there").nodes()

    assert node["metadata"]["name"] == "node-a"


def test_the_namespace_is_the_flags_or_the_contexts_or_default(home: Path) -> None:
    file = kubeconfig(home / "config", here="team", there=None, far="other")

    assert find_namespace("mine", file, None) == "mine"
    assert find_namespace(None, file, None) == "team"
    assert find_namespace(None, file, "there") == "default"
    assert find_namespace(None, file, "far") == "other"
