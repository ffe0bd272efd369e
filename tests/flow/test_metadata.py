"""A container reads what its devices are, where Kubernetes says that it finds that (KEP-5304)."""

from tests.clusters import DriverNode
from tests.flow.claims import gpu_pod, make_claim, request, start
from tests.flow.metadata_scene import devices_told, metadata_files
from tests.flow.told_scene import assert_told_alike


def test_each_container_reads_of_its_own_request_of_a_claim_that_pods_name(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    make_claim(cluster, namespace, "both", request("one"), request("two", count=2))
    pod = gpu_pod("train", "both", ("first", "second"))
    for container, name in zip(pod["spec"]["containers"], ("one", "two"), strict=True):
        container["resources"]["claims"] = [{"name": "gpu", "request": name}]
    start(cluster, namespace, pod)

    (alone,) = devices_told(cluster, namespace, "train", "resourceclaims/both", "one", "first")
    two = devices_told(cluster, namespace, "train", "resourceclaims/both", "two", "second")
    assert len({alone["name"], *(one["name"] for one in two)}) == 3
    assert len(metadata_files(cluster, namespace, "train", "second")) == 1
    assert_told_alike(driver, namespace, "train", "GpuReady")
