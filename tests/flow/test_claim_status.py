"""The status of a claim follows the health of its devices."""

from driver.claims.opaque import API_VERSION
from tests.clusters import Cluster, DriverNode, Object, paths, wait_for, wait_for_list
from tests.flow.claims import allocated, gpu_pod, request, start
from tests.gpus import DRIVER_NAME

SLICED = {
    "apiVersion": API_VERSION,
    "kind": "GpuConfig",
    "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
}


def configured_claim(cluster: Cluster, namespace: str, name: str) -> None:
    """A claim with a configuration, which the status has to leave as it is."""
    config = [{"opaque": {"driver": DRIVER_NAME, "parameters": SLICED}}]
    cluster.api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request()], "config": config}},
        },
        namespace,
    )


def wait_ready(cluster: Cluster, namespace: str, claim: str, status: str, reason: str) -> Object:
    """The entry of the only device of a claim, once its condition is so."""

    def told(stored: Object) -> bool:
        entries = stored.get("status", {}).get("devices") or ()
        return any(
            (one["status"], one["reason"]) == (status, reason)
            for entry in entries
            for one in entry.get("conditions") or ()
        )

    stored = wait_for(cluster.api, paths.resource_claim(claim, namespace), told, 60)
    (entry,) = stored["status"]["devices"]
    return dict(entry)


def wait_events(cluster: Cluster, namespace: str, reason: str) -> list[tuple[str, str, int]]:
    """What events of a reason are about, and how often each was posted, once claim and pod have one."""

    def about(found: list[Object]) -> list[tuple[str, str, int]]:
        return sorted(
            (event["involvedObject"]["kind"], event["involvedObject"]["name"], event.get("count", 1))
            for event in found
            if event["reason"] == reason
        )

    events = f"/api/v1/namespaces/{namespace}/events"
    return about(wait_for_list(cluster.api, events, lambda found: len(about(found)) >= 2, 60))


def test_a_sick_gpu_is_seen_in_the_claim_and_told_once(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    configured_claim(cluster, namespace, "sliced")
    start(cluster, namespace, gpu_pod("train", "sliced"))
    entry = wait_ready(cluster, namespace, "sliced", "True", "ShareReady")
    stored = cluster.api.get(paths.resource_claim("sliced", namespace))
    (device,) = allocated(stored)
    pci = next(pci for pci in driver.machine.state.gpus if str(pci) == entry["data"]["pciBusID"])
    assert entry["device"] == device
    assert entry["data"]["uuid"] == driver.machine.uuid(pci)
    assert entry["data"]["interval"] == "Long"

    driver.machine.lose(pci)
    lost = wait_ready(cluster, namespace, "sliced", "False", "GpuLost")
    assert lost["conditions"][0]["message"]
    driver.machine.restore(pci)
    wait_ready(cluster, namespace, "sliced", "True", "ShareReady")
    for reason in ("GpuSick", "GpuWell"):
        told = wait_events(cluster, namespace, reason)
        assert told == [("Pod", "train", 1), ("ResourceClaim", "sliced", 1)]
