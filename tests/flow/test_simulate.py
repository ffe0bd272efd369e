"""``gpuctl simulate --from-cluster`` begins with what a cluster publishes and what is in use there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from envtest.cluster import Cluster
from gpuctl.__main__ import commands
from gpuctl.demo.driver_node import DriverNode
from tests.flow.claims import gpu_pod, make_claim, make_template, request, start, wait_published


def simulated(
    cluster: Cluster, folder: Path, count: int, asked: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Exit code and result of so many more pods with a claim each."""
    group = {"name": "more", "count": count, "claims": [{"devices": {"requests": [asked]}}]}
    workload = folder / "workload.yaml"
    workload.write_text(json.dumps({"version": "v1", "pods": [group]}))
    flags = ("--from-cluster", "--kubeconfig", str(cluster.admin), "--workload", str(workload), "-o", "json")
    result = CliRunner().invoke(commands, ["simulate", *flags], catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


def test_what_pods_have_is_not_given_again_and_the_pods_that_fit_do_fit(
    driver: DriverNode, namespace: str, tmp_path: Path
) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace, request(count=3))
    start(cluster, namespace, gpu_pod("there"))
    (published,) = wait_published(driver)
    total = len(published["spec"]["devices"])

    code, found = simulated(cluster, tmp_path, total - 2, request())

    (more,) = found["groups"]
    assert (code, more["placed"], more["waiting"]) == (3, total - 3, 1)
    assert [(one["reason"], one["devices"]) for one in more["why"]] == [
        ("in use by pods of more", total - 3),
        ("in use by earlier claims", 3),
    ]
    assert found["tiers"]["whole"]["allocated"] == total
    for number in range(total - 3):
        make_claim(cluster, namespace, f"more-{number}")
        start(cluster, namespace, gpu_pod(f"more-{number}", f"more-{number}"))
    assert simulated(cluster, tmp_path, 1, request())[0] == 3
