"""``gpuctl doctor`` and ``gpuctl gather`` against Kubernetes: rights, gates, policies, and the webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from driver.devices.names import DRIVER_NAME
from envtest.client import paths
from envtest.real.cluster import RealCluster
from gpuctl.__main__ import commands
from gpuctl.demo.driver_node import DRIVER_NAMESPACE, DriverNode
from gpuctl.doctor.outside.admission import POLICIES
from gpuctl.doctor.outside.checks import OUTSIDE
from gpuctl.gather.archive import read_archive
from tests.cluster.test_webhook import CONFIGURATIONS, NAME, Webhook
from tests.eventually import eventually
from tests.flow.claims import gpu_pod, make_claim, start, wait_running
from tests.flow.test_doctor import local

Object = dict[str, Any]

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpu-dra-kubeletplugin"
BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/gpu-dra-own-events"
WITHOUT_PODS = {"workloads": "warn", "driver-pods": "skipped", "webhook": "skipped"}
"""What the doctor says of a driver that runs outside of pods and without its webhook, as here."""


def doctor(kubeconfig: Path, *arguments: str) -> dict[str, Object]:
    """What each check found."""
    words = ["doctor", *arguments, "--kubeconfig", str(kubeconfig), "-o", "json"]
    ran = CliRunner().invoke(commands, words, catch_exceptions=False)
    return {one["check"]: one for one in json.loads(ran.stdout)["results"]}


def wait_for_status(cluster: RealCluster, check: str, status: str) -> Object:
    """What a check finds, once it is of this status: rights and policies take a moment to be in force."""
    look = partial(doctor, cluster.admin)
    return eventually(f"{check}: {status}", look, lambda checks: checks[check]["status"] == status)[check]


@contextmanager
def without(cluster: RealCluster, path: str) -> Iterator[None]:
    """The cluster without an object."""
    stored = cluster.api.get(path)
    cluster.api.delete(path)
    try:
        yield
    finally:
        for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            stored["metadata"].pop(field, None)
        cluster.api.create(stored)


@pytest.mark.usefixtures("driver")
def test_an_administrator_hears_of_everything(installed_cluster: RealCluster) -> None:
    before = {one["metadata"]["name"] for one in installed_cluster.api.list_objects(paths.resource_slice())}

    found = doctor(installed_cluster.admin)

    warnings = {"warnings", "taints"}  # the tests before this one have caused some
    told = {check.name: found[check.name]["status"] for check in OUTSIDE if check.name not in warnings}
    expected = dict.fromkeys(told, "ok") | WITHOUT_PODS
    assert told == expected, {name: found[name] for name in told if told[name] != expected[name]}
    assert "DRAPartitionableDevices" in found["feature-gates"]["message"]
    after = {one["metadata"]["name"] for one in installed_cluster.api.list_objects(paths.resource_slice())}
    assert before == after


@pytest.mark.usefixtures("driver")
def test_who_may_look_at_little_hears_of_it(installed_cluster: RealCluster) -> None:
    node = installed_cluster.nodes[0].name
    account = installed_cluster.service_account_kubeconfig(DRIVER_NAMESPACE, "gpu-dra-kubeletplugin", node)

    found = doctor(account)

    assert found["published"]["status"] == "skipped"
    assert found["driver-rights"]["message"] == "this user may not ask for the rights of others"
    assert found["feature-gates"]["message"] == "this user may not create slices, even in a dry run"
    assert "list nodes" in found["own-rights"]["details"]
    assert found["pools"]["status"] == "ok"


def test_a_right_that_was_taken_away_is_found(installed_cluster: RealCluster) -> None:
    role = installed_cluster.api.get(ROLE)
    kept = [rule for rule in role["rules"] if rule["resources"] != ["resourceclaims/driver"]]
    installed_cluster.api.patch(ROLE, {"rules": kept})
    try:
        found = wait_for_status(installed_cluster, "driver-rights", "fail")
    finally:
        installed_cluster.api.patch(ROLE, {"rules": role["rules"]})

    assert found["details"] == [
        f"gpu-dra/gpu-dra-kubeletplugin may not associated-node:{verb} "
        "resourceclaims/driver.resource.k8s.io gpu.nvidia.com"
        for verb in ("patch", "update")
    ]
    wait_for_status(installed_cluster, "driver-rights", "ok")


def test_a_policy_that_nobody_binds_is_found(installed_cluster: RealCluster) -> None:
    with without(installed_cluster, BINDING):
        found = wait_for_status(installed_cluster, "policies", "fail")

    assert found["details"] == ["gpu-dra-own-events: no binding of it has the action Deny"]


def test_a_webhook_is_tried_out(installed_cluster: RealCluster, tmp_path: Path) -> None:
    webhook = Webhook(installed_cluster, tmp_path / "tls")
    installed_cluster.api.create(webhook.registered())
    try:
        # Its certificate is for the test alone. That soon expires is said of a webhook that answers.
        wait_for_status(installed_cluster, "webhook", "warn")
        webhook.process.stop()
        assert "does not deny" in wait_for_status(installed_cluster, "webhook", "fail")["message"]
    finally:
        installed_cluster.api.delete(f"{CONFIGURATIONS}/{NAME}")
    wait_for_status(installed_cluster, "webhook", "skipped")


def test_a_node_at_work_is_well_as_its_kubelet_tells(driver: DriverNode, namespace: str) -> None:
    make_claim(driver.cluster, namespace, "mine")
    start(driver.cluster, namespace, gpu_pod("train", "mine"))
    wait_running(driver.cluster, namespace, "train")

    found = local(driver)

    assert {name: one for name, one in found.items() if one["status"] == "fail"} == {}
    assert found["containers"]["status"] == found["plugin"]["status"] == found["cdi-specs"]["status"] == "ok"


@pytest.mark.usefixtures("driver")
def test_a_report_of_a_cluster_is_written(installed_cluster: RealCluster, tmp_path: Path) -> None:
    file = tmp_path / "report.tar.gz"
    words = ["gather", "--kubeconfig", str(installed_cluster.admin), "--to", str(file)]

    CliRunner().invoke(commands, words, catch_exceptions=False)

    members = {one.name: one.data for one in read_archive(file.read_bytes())}
    slices = json.loads(members["objects/resourceslices.json"])
    assert {one["spec"]["driver"] for one in slices} == {DRIVER_NAME}
    policies = json.loads(members["objects/validatingadmissionpolicies.json"])
    assert {one["metadata"]["name"] for one in policies} == set(POLICIES)
