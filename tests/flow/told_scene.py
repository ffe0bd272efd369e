"""Four places tell what a pod's claim has, and must agree: journal, status, metadata files, pod-resources."""

import grpc

from kubeletplugin.claims.journal.entry import decode
from proto import podresources_v1_pb2 as pb
from tests.clusters import DriverNode, Object, paths, wait_for
from tests.flow.metadata_scene import devices_told, metadata_files
from tests.gpus import DRIVER_NAME
from tests.plugin import Entry, HeldDevice

Key = tuple[str, str, str]
"""A device of a claim: its pool, its name, and its share, empty where it is not shared."""

CDI_KIND = f"k8s.{DRIVER_NAME}/claim"
NODES = "/v1.PodResourcesLister"


def assert_told_alike(driver: DriverNode, namespace: str, pod: str, reason: str) -> Object:
    """See that all that tells of the devices of a running pod's only claim says the same.

    ``reason`` is that of the condition Ready of each. Returns what the status tells of the first device: its
    data.
    """
    stored = driver.cluster.api.get(paths.pod(pod, namespace))
    (named,) = stored["spec"]["resourceClaims"]
    statuses = {one["name"]: one for one in stored["status"].get("resourceClaimStatuses") or ()}
    claim = str(statuses.get(named["name"], named)["resourceClaimName"])
    told = _status(driver, namespace, claim)
    entry = _entry(driver, namespace, claim)
    held = {_key(one): one for one in entry.devices}
    assert told.keys() == held.keys()
    for key, one in held.items():
        (ready,) = told[key]["conditions"]
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", reason), ready
        assert told[key]["data"]["pciBusID"] == _bus_id(one)
    folder = "resourceclaimtemplates/" + named["name"] if entry.pod_claim_name else f"resourceclaims/{claim}"
    for container in stored["spec"]["containers"]:
        asked = _requests(container, named["name"], entry)
        if asked:
            _see_metadata(driver, namespace, pod, container["name"], folder, asked, told)
    _see_pod_resources(driver, stored, claim, named["name"], entry)
    return dict(told[_key(entry.devices[0])]["data"])


def _key(held: HeldDevice) -> Key:
    return held.pool, held.allocated_name, held.share_id or ""


def _bus_id(held: HeldDevice) -> str:
    """The address that is told: that of the function which was made, for a vGPU that is one."""
    function = held.record.get("function") if held.kind == "vgpu" and not held.record.get("uuid") else None
    return str(function or held.pci)


def _entry(driver: DriverNode, namespace: str, claim: str) -> Entry:
    uid = driver.cluster.api.get(paths.resource_claim(claim, namespace))["metadata"]["uid"]
    entry = decode((driver.journal_dir / f"{uid}.json").read_bytes())
    assert entry.state == "prepared"
    return entry


def _status(driver: DriverNode, namespace: str, claim: str) -> dict[Key, Object]:
    """What the status tells of each device, once it tells of all that are allocated."""

    def complete(stored: Object) -> bool:
        status = stored["status"]
        results = [one for one in status["allocation"]["devices"]["results"] if one["driver"] == DRIVER_NAME]
        devices = {(one["device"], one.get("shareID")) for one in results}
        return len(status.get("devices") or ()) == len(devices)

    stored = wait_for(driver.cluster.api, paths.resource_claim(claim, namespace), complete, 30)
    return {(one["pool"], one["device"], one.get("shareID", "")): one for one in stored["status"]["devices"]}


def _requests(container: Object, claim: str, entry: Entry) -> dict[str, list[HeldDevice]]:
    """The devices that a container uses, by request."""
    used = [one for one in container["resources"].get("claims") or () if one["name"] == claim]
    named = {one.get("request") for one in used}
    found: dict[str, list[HeldDevice]] = {}
    for held in entry.devices:
        request = held.request.partition("/")[0]
        if used and (None in named or request in named):
            found.setdefault(request, []).append(held)
    return found


def _see_metadata(
    driver: DriverNode,
    namespace: str,
    pod: str,
    container: str,
    folder: str,
    asked: dict[str, list[HeldDevice]],
    told: dict[Key, Object],
) -> None:
    """See that a container reads of the devices of its requests, and of no others, what the status tells."""
    cluster = driver.cluster
    assert len(metadata_files(cluster, namespace, pod, container)) == len(asked)
    for request, held in asked.items():
        devices = devices_told(cluster, namespace, pod, folder, request, container)
        assert [(one["pool"], one["name"]) for one in devices] == [_key(one)[:2] for one in held]
        for device, one in zip(devices, held, strict=True):
            attributes, data = device["attributes"], told[_key(one)]["data"]
            assert attributes["type"]["string"], "a program may have to know what it has"
            assert attributes["productName"]["string"]
            if "mdevUUID" in data:
                assert attributes["mdevUUID"]["string"] == data["mdevUUID"]
                assert "resource.kubernetes.io/pciBusID" not in attributes, "it has no address of its own"
            else:
                assert attributes["resource.kubernetes.io/pciBusID"]["string"] == data["pciBusID"]
            for name in data.keys() & attributes.keys():
                assert data[name] in attributes[name].values(), name
            if "uuid" in data:
                assert attributes["uuid"]["string"] == data["uuid"]


def _see_pod_resources(driver: DriverNode, pod: Object, claim: str, name: str, entry: Entry) -> None:
    """See that the kubelet has just the journal's devices for each container that uses the claim."""
    metadata = pod["metadata"]
    socket = driver.data_dir.parent.parent / "pod-resources" / "kubelet.sock"
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        list_all = channel.unary_unary(
            f"{NODES}/List",
            request_serializer=pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pb.ListPodResourcesResponse.FromString,
        )
        (listed,) = [
            one
            for one in list_all(pb.ListPodResourcesRequest(), timeout=5).pod_resources
            if (one.name, one.namespace) == (metadata["name"], metadata["namespace"])
        ]
    using = {
        one["name"]
        for one in pod["spec"]["containers"]
        if any(used["name"] == name for used in one["resources"].get("claims") or ())
    }
    for container in listed.containers:
        held = [one for one in container.dynamic_resources if one.claim_name == claim]
        assert bool(held) == (container.name in using)
        for one in held:
            _see_devices(one, entry)


def _see_devices(held: pb.DynamicResource, entry: Entry) -> None:
    """See that a container has each device of the claim, whichever request it uses, with its CDI device."""
    ours = [one for one in held.claim_resources if one.driver_name == DRIVER_NAME]
    listed = [(one.pool_name, one.device_name, one.share_id) for one in ours]
    assert sorted(listed) == sorted(_key(one) for one in entry.devices)
    by_key = {(one.pool_name, one.device_name, one.share_id): one for one in ours}
    for device in entry.devices:
        names = {cdi.name for cdi in by_key[_key(device)].cdi_devices}
        assert f"{CDI_KIND}={device.cdi_device}" in names
