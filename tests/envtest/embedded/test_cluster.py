"""The embedded cluster as a whole: nodes, outages of the API server, and nothing left at its end."""

import subprocess
import sys
import threading
from pathlib import Path

from tests.clusters import EmbeddedCluster


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


def test_a_folder_too_deep_for_sockets_is_refused_before_anything_starts(tmp_path: Path) -> None:
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
