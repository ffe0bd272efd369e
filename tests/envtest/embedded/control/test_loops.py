"""The cluster's loops go on whatever an object does to them, and a fault of theirs is never silent."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.embedded.api import unforeseen
from tests.clusters import EmbeddedApiServer, Object
from tests.envtest.embedded.control.control_plane import ControlPlane, control_plane
from tests.faults import NOTED

PROJECT = Path(__file__).resolve().parents[4]


@pytest.fixture
def cluster() -> Iterator[ControlPlane]:
    with control_plane() as found:
        yield found
    NOTED.take()  # loops meet a sick object again and again, until they are stopped


def put(server: EmbeddedApiServer, collection: tuple[str, str], item: Object) -> None:
    """Store an object that the API server would refuse: what it takes, the loops can read."""
    metadata = {"uid": f"uid-of-{item['metadata']['name']}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    item = {**item, "metadata": {**metadata, **item["metadata"]}}
    server.store.put(collection, (item["metadata"].get("namespace", ""), item["metadata"]["name"]), item)


def noted(cluster: ControlPlane, words: str) -> list[unforeseen.Unforeseen]:
    """The faults, once there is one whose place has these words."""
    found: list[unforeseen.Unforeseen] = []

    def seen() -> bool:
        found.extend(NOTED.take())
        return any(words in one.doing for one in found)

    cluster.wait(seen)
    return found


def test_a_pod_that_the_scheduler_cannot_read_does_not_stop_it(cluster: ControlPlane) -> None:
    cluster.add_slice("s", "gpu-0")
    cluster.add_claim("mine")
    sick = {"metadata": {"name": "sick", "namespace": "default"}, "spec": {"tolerations": 5}}
    put(cluster.server, ("", "pods"), {**sick, "spec": {"tolerations": 5, "nodeSelector": 5}})

    (fault, *_) = noted(cluster, "scheduler at default/sick")
    cluster.add_pod("well", "mine")

    assert cluster.wait_bound("well") == "node-a"
    assert "Traceback" in str(fault)


def test_a_test_in_which_a_cluster_fails_at_itself_fails(tmp_path: Path) -> None:
    """What its fixture does, in a run of its own."""
    (tmp_path / "test_quiet.py").write_text(
        "from envtest.embedded.api import unforeseen\n"
        "def test_asserts_nothing_that_fails():\n"
        "    unforeseen.note('a loop of the cluster', KeyError('containers'))\n"
        "def test_of_another_matter():\n"
        "    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "envtest.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120
    )

    assert "2 passed, 1 error" in done.stdout
    assert "test_quiet.py::test_asserts_nothing_that_fails" in done.stdout
    assert "test_quiet.py::test_of_another_matter" not in done.stdout
    assert "a loop of the cluster:" in done.stdout
    assert "KeyError: 'containers'" in done.stdout
