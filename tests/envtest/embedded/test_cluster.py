"""The embedded cluster as a whole: nodes, outages of the API server, and nothing left at its end."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusters import EmbeddedCluster, fresh_namespace, paths, wait_for


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(node_count=2) as found:
        yield found


@pytest.fixture
def namespace(cluster: EmbeddedCluster) -> Iterator[str]:
    with fresh_namespace(cluster.api) as name:
        yield name


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return {**head, "spec": {"containers": containers, **spec}}


def run(cluster: EmbeddedCluster, namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    cluster.api.create(pod(name, **spec), namespace)
    return wait_for(cluster.api, paths.pod(name, namespace), runs, 20)


def runs(stored: dict[str, Any]) -> bool:
    return bool(stored.get("status", {}).get("phase") == "Running")


def test_nothing_is_left_of_a_closed_cluster() -> None:
    before = set(threading.enumerate())
    with EmbeddedCluster() as cluster:
        folder = cluster.folder
        child = cluster.processes.start("child", [sys.executable, "-c", "input()"])
        sleeper = cluster.processes.popen("child")
        assert cluster.admin.exists()
    cluster.close()

    assert not folder.exists()
    assert sleeper.poll() is not None
    assert child.name == "child"
    left = {thread.name for thread in set(threading.enumerate()) - before if thread.is_alive()}
    assert not {name for name in left if "kubelet" in name or "scheduler" in name}


def test_a_folder_too_deep_for_sockets_is_refused_before_anything_starts(tmp_path: Any) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    program = "from envtest.embedded.cluster import EmbeddedCluster; EmbeddedCluster()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"TMPDIR": str(deep), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "is too long for the unix sockets in it" in done.stderr
    assert list(deep.iterdir()) == []
