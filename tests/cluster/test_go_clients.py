"""Clients in Go: client-go's informers, and the controller of slices."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import EmbeddedCluster, go_programs
from tools.testbed.kubectl.running import manifests


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """An embedded cluster with one node."""
    with EmbeddedCluster(https=True) as started:
        yield started


def run(program: str, kubeconfig: Path) -> str:
    """Run one of the programs to its end, and return what it printed."""
    done = subprocess.run(
        [go_programs("clients") / program],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_informers_of_all_kinds_get_whole_objects_and_metadata(cluster: EmbeddedCluster) -> None:
    for manifest in manifests():
        cluster.api.create(manifest)

    counts = json.loads(run("informers", cluster.admin))

    for name, found in counts.items():
        *group, _, plural = name.split("/")
        # Events of both groups are the same objects.
        group_name = group[0] if group and plural != "events" else ""
        stored = len(cluster.api_server.objects(plural, group_name))
        assert found == {"typed": stored, "metadata": stored}, name
    assert counts["resource.k8s.io/v1/resourceslices"]["typed"] == 1


def test_the_controller_of_kubernetes_publishes_slices_and_puts_deleted_ones_back(
    cluster: EmbeddedCluster,
) -> None:
    assert run("slices", cluster.admin).splitlines() == [
        "[first/device-0 first/device-1 first/device-2]",
        "[second/device-0 second/device-1]",
        "[]",
        "[second/device-0 second/device-1]",
    ]
