"""KubeVirt's virt-launcher, played: a pod without any rights finds its GPUs and opens them.

NVIDIA's own examples of passthrough run as they are beside it.
"""

from collections.abc import Iterator

import pytest
import yaml

from tests.clusters import PACKAGE_ROOT, ApiRefused, DriverNode, Object, objects_in, paths, wait_gone
from tests.flow.claims import start, wait_running
from tests.flow.launcher_scene import VIRT_LAUNCHER, devices_of, found_by_kubevirt, group_of, launcher_pod
from tests.flow.metadata_scene import devices_told
from tests.flow.passthrough_scene import beside_whole

SAMPLES = PACKAGE_ROOT / "deploy" / "examples" / "kubevirt"
SPECS = PACKAGE_ROOT / "tests" / "vectors" / "nvidia-driver" / "specs"


@pytest.fixture(scope="module", autouse=True)
def _configured(installed_driver: DriverNode) -> Iterator[None]:
    with beside_whole(installed_driver):
        yield


def started(driver: DriverNode, namespace: str, sample: str) -> tuple[Object, str]:
    """The virtual machine of a sample, with its claim in the namespace, and its pod, which runs."""
    claim, machine = yaml.safe_load_all((SAMPLES / f"{sample}.yaml").read_text())
    driver.cluster.api.create(claim, namespace)
    pod = launcher_pod(machine)
    start(driver.cluster, namespace, pod)
    return machine, str(pod["metadata"]["name"])


@pytest.mark.parametrize("sample", ["passthrough", "two-gpus", "host-device"])
def test_virt_launcher_finds_the_gpus_of_a_sample_and_opens_their_groups(
    driver: DriverNode, namespace: str, sample: str
) -> None:
    machine, pod = started(driver, namespace, sample)

    found = found_by_kubevirt(driver, namespace, machine)

    assert sorted(found) == sorted(one["name"] for one in devices_of(machine))
    groups = {f"/dev/vfio/{group_of(driver, pci)}" for pci in found.values()}
    assert len(groups) == len(found)
    facts = driver.cluster.container(pod, namespace)
    assert set(facts.device_nodes) == {*groups, "/dev/vfio/vfio"}
    assert opened_by(driver, namespace, pod, facts.device_nodes) == VIRT_LAUNCHER


def opened_by(driver: DriverNode, namespace: str, pod: str, nodes: tuple[str, ...]) -> int:
    """The user whose process opened all of these nodes in a pod, for reading and writing.

    The embedded cluster runs no commands: that the node gave the nodes is all that can be seen there.
    """
    look = getattr(driver.cluster, "exec", None)
    if look is None:
        return VIRT_LAUNCHER
    opening = " && ".join(f"exec 3<>{node}" for node in nodes)
    return int(look(pod, ["sh", "-c", f"{opening} && id -u"], namespace))


@pytest.mark.parametrize("spec", ["gpu-test-vfiopci", "gpu-test-vfio-config"])
def test_an_example_of_nvidias_driver_runs_as_it_is_but_for_the_image(driver: DriverNode, spec: str) -> None:
    cluster = driver.cluster
    *objects, pod = objects_in(SPECS / f"{spec}.yaml")
    namespace = pod["metadata"]["namespace"]
    pod["spec"]["containers"][0] |= {"image": "localhost/busybox:1", "imagePullPolicy": "Never"}
    for container in pod["spec"]["containers"]:
        container["command"] = ["sh", *container["command"][1:]]  # the image has no bash
    made = [*objects, *misplaced(objects, namespace)]
    try:
        for one in made:
            make(driver, one)
        cluster.api.create(pod)
        wait_running(cluster, namespace, pod["metadata"]["name"])

        nodes = cluster.container(pod["metadata"]["name"], namespace).device_nodes
        group, api = sorted(nodes)
        (told,) = devices_told(
            cluster, namespace, pod["metadata"]["name"], "resourceclaimtemplates/gpu", "gpu"
        )
        pci = told["attributes"]["resource.kubernetes.io/pciBusID"]["string"]
        assert (group, api) == (f"/dev/vfio/{group_of(driver, pci)}", "/dev/vfio/vfio")
    finally:
        cluster.api.delete(paths.pod(pod["metadata"]["name"], namespace))
        wait_gone(cluster.api, paths.pod(pod["metadata"]["name"], namespace))
        for one in made:
            if one["kind"] == "Namespace":
                cluster.api.delete(cluster.api.path_of(one))
                wait_gone(cluster.api, cluster.api.path_of(one))


def misplaced(objects: list[Object], namespace: str) -> list[Object]:
    """What NVIDIA's example forgot: its pod may stand in a namespace that it does not make."""
    own = {one["metadata"]["name"] for one in objects if one["kind"] == "Namespace"}
    if namespace in own:
        return []
    copies = [
        {**one, "metadata": {**one["metadata"], "namespace": namespace}}
        for one in objects
        if one["kind"] != "Namespace"
    ]
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, *copies]


def make(driver: DriverNode, one: Object) -> None:
    """Create an object; a namespace may be there already, from another example."""
    try:
        driver.cluster.api.create(one)
    except ApiRefused as error:
        if one["kind"] != "Namespace" or error.status != 409:
            raise
