"""``gpuctl doctor`` looks at the driver at work, on either cluster: content while all is well, not after."""

import json
from dataclasses import dataclass
from functools import partial

import pytest
from click.testing import CliRunner

from tests.clusters import Cluster, DriverNode, Object, commands
from tests.eventually import eventually
from tests.flow.claims import gpu_pod, make_claim, start, wait_running
from tests.plugin import cdi_spec_file_name


def doctor(*arguments: str) -> dict[str, Object]:
    """What each check found."""
    ran = CliRunner().invoke(commands, ["doctor", *arguments, "-o", "json"], catch_exceptions=False)
    return {one["check"]: one for one in json.loads(ran.stdout)["results"]}


def local_flags(driver: DriverNode) -> list[str]:
    """The flags by which the node's files are found."""
    return [
        *("--plugins-dir", str(driver.node.plugins_dir), "--registry-dir", str(driver.node.registry_dir)),
        *("--cdi-dir", str(driver.node.cdi_dir), "--mps-dir", str(driver.mps_dir), "--nvml", driver.nvml),
        *("--driver-root", str(driver.folder / "driver"), "--sysfs-root", str(driver.folder / "sys")),
        *("--host-root", str(driver.folder)),
    ]


def local(driver: DriverNode) -> dict[str, Object]:
    """What each check of the driver's node found."""
    return doctor("--local", *local_flags(driver))


@dataclass(frozen=True, slots=True)
class Working:
    """The driver, and the UID of a claim that a running pod has."""

    driver: DriverNode
    uid: str


@pytest.fixture
def working(driver: DriverNode, namespace: str) -> Working:
    """The driver with a pod that has a GPU."""
    claim = make_claim(driver.cluster, namespace, "mine")
    start(driver.cluster, namespace, gpu_pod("train", "mine"))
    wait_running(driver.cluster, namespace, "train")
    return Working(driver, claim["metadata"]["uid"])


def wait_for_status(driver: DriverNode, check: str, status: str) -> Object:
    """What a check of the node finds, once it is of this status."""
    return eventually(f"{check}: {status}", lambda: local(driver)[check], lambda one: one["status"] == status)


def test_a_node_at_work_is_well(working: Working) -> None:
    wait_for_status(working.driver, "journal", "ok")

    found = local(working.driver)

    assert {name: one["message"] for name, one in found.items() if one["status"] in ("warn", "fail")} == {}
    assert "1 prepared claim" in found["cdi-specs"]["message"]
    assert found["plugin"]["status"] == found["prepared-devices"]["status"] == found["nvml"]["status"] == "ok"


def test_a_plugin_that_ended_and_a_spec_that_is_lost_are_found(working: Working) -> None:
    driver = working.driver
    driver.process("kubeletplugin").kill()
    spec = driver.node.cdi_dir / cdi_spec_file_name(working.uid)
    content = spec.read_bytes()
    spec.unlink()
    try:
        found = local(driver)

        assert found["plugin"]["status"] == "fail"
        assert found["cdi-specs"]["status"] == "fail"
        assert f"(UID {working.uid}): it has no CDI spec" in found["cdi-specs"]["details"][0]
    finally:
        spec.write_bytes(content)
        driver.start_plugin()
        driver.wait_serving()


@pytest.mark.usefixtures("driver")
def test_from_outside_what_is_published_is_well(cluster: Cluster) -> None:
    look = partial(doctor, "--kubeconfig", str(cluster.admin))
    found = eventually(
        "the taints of tests before are gone", look, lambda one: one["taints"]["status"] == "ok"
    )

    for name in ("server-version", "api", "feature-gates", "published", "pools", "classes", "policies"):
        assert found[name]["status"] == "ok", found[name]
