"""scenario-cuda allocates what a pod may have, says where it ends, and names a pod that has no GPU."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from driver.errors import ClaimBlocked
from envtest.client import paths
from envtest.client.shipped import PACKAGE_ROOT
from envtest.client.waiting import wait_for
from tools.scenarios.places.place import Place
from tools.scenarios.programs import cuda

QUIET = PACKAGE_ROOT / "deploy/scenarios/memory-limits/quiet.yaml"


@pytest.fixture(scope="module")
def quiet(built: Place) -> str:
    """A pod that runs, with a share of 10 GiB."""
    assert built.cluster is not None
    built.cluster.api.apply(QUIET)
    wait_for(built.cluster.api, paths.pod("quiet"), lambda pod: pod["status"].get("phase") == "Running")
    return "quiet"


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ("3Gi", "allocated 3 GiB"),
        ("10Gi", "allocated 10 GiB"),
        ("22Gi", "allocated 10 GiB, then CUDA_ERROR_OUT_OF_MEMORY"),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_pod_gets_what_its_claim_has_and_no_more(quiet: str, memory: str, said: str) -> None:
    result = CliRunner().invoke(cuda, [quiet, memory], catch_exceptions=False)

    assert (result.exit_code, result.output) == (0, f"{quiet}: {said}\n")


def test_a_pod_without_a_gpu_is_named(place: Place) -> None:
    assert place.cluster is not None
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain"},
        "spec": {"containers": [{"name": "main", "image": "busybox:1.37", "command": ["sleep", "infinity"]}]},
    }
    place.cluster.api.create(pod)
    wait_for(place.cluster.api, paths.pod("plain"), lambda stored: stored["status"].get("phase") == "Running")

    with pytest.raises(ClaimBlocked, match="pod default/plain has no GPU"):
        CliRunner().invoke(cuda, ["plain", "1Gi"], catch_exceptions=False)
