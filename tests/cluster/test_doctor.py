"""``gpuctl doctor`` and ``gpuctl gather`` against Kubernetes: gates, and a node at work."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.doctor.outside.admission import POLICIES
from gpuctl.doctor.outside.checks import OUTSIDE
from gpuctl.gather.archive import read_archive
from tests.api.test_doctor import doctor
from tests.clusters import DRIVER_NAMESPACE, DriverNode, RealCluster, commands, paths
from tests.flow.claims import gpu_pod, make_claim, start, wait_running
from tests.flow.test_doctor import local
from tests.gpus import DRIVER_NAME

WITHOUT_PODS = {"workloads": "warn", "driver-pods": "skipped", "webhook": "skipped"}
"""What the doctor says of a driver that runs outside of pods and without its webhook, as here."""


@pytest.mark.usefixtures("driver")
def test_an_administrator_hears_of_everything(real_cluster: RealCluster) -> None:
    before = {one["metadata"]["name"] for one in real_cluster.api.list_objects(paths.resource_slice())}

    found = doctor(real_cluster.admin)

    warnings = {"warnings", "taints"}  # the tests before this one have caused some
    told = {check.name: found[check.name]["status"] for check in OUTSIDE if check.name not in warnings}
    expected = dict.fromkeys(told, "ok") | WITHOUT_PODS
    assert told == expected, {name: found[name] for name in told if told[name] != expected[name]}
    assert "DRAPartitionableDevices" in found["feature-gates"]["message"]
    after = {one["metadata"]["name"] for one in real_cluster.api.list_objects(paths.resource_slice())}
    assert before == after


@pytest.mark.usefixtures("driver")
def test_who_may_look_at_little_hears_of_it(real_cluster: RealCluster) -> None:
    node = real_cluster.nodes[0].name
    account = real_cluster.service_account_kubeconfig(DRIVER_NAMESPACE, "gpu-dra-kubeletplugin", node)

    found = doctor(account)

    assert found["published"]["status"] == "skipped"
    assert found["driver-rights"]["message"] == "this user may not ask for the rights of others"
    assert found["feature-gates"]["message"] == "this user may not create slices, even in a dry run"
    assert "list nodes" in found["own-rights"]["details"]
    assert found["pools"]["status"] == "ok"


def test_a_node_at_work_is_well_as_its_kubelet_tells(driver: DriverNode, namespace: str) -> None:
    make_claim(driver.cluster, namespace, "mine")
    start(driver.cluster, namespace, gpu_pod("train", "mine"))
    wait_running(driver.cluster, namespace, "train")

    found = local(driver)

    assert {name: one for name, one in found.items() if one["status"] == "fail"} == {}
    assert found["containers"]["status"] == found["plugin"]["status"] == found["cdi-specs"]["status"] == "ok"


@pytest.mark.usefixtures("driver")
def test_a_report_of_a_cluster_is_written(real_cluster: RealCluster, tmp_path: Path) -> None:
    file = tmp_path / "report.tar.gz"
    words = ["gather", "--kubeconfig", str(real_cluster.admin), "--to", str(file)]

    CliRunner().invoke(commands, words, catch_exceptions=False)

    members = {one.name: one.data for one in read_archive(file.read_bytes())}
    slices = json.loads(members["objects/resourceslices.json"])
    assert {one["spec"]["driver"] for one in slices} == {DRIVER_NAME}
    policies = json.loads(members["objects/validatingadmissionpolicies.json"])
    assert {one["metadata"]["name"] for one in policies} == set(POLICIES)
