"""Time-sliced shares, and shares beside whole GPUs and partitions: who gets them, and what is left."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.clusters import DriverNode, Object, fresh_namespace, paths, wait_for
from tests.flow.claims import gpu_pod, make_claim, make_template, request, start, wait_released, wait_running
from tests.flow.mig_scene import end, pod_of, template, wait_cut
from tests.flow.share_scene import (
    LIMITS,
    NODE_CONFIGS,
    given,
    mps_environment,
    shared,
    uuids_seen,
    wait_first_gpu,
)
from tests.flow.test_pods_and_claims import wait_refused
from tests.gpus import DRIVER_NAME, gpu_device_name

TWO_GPUS = """version: v1
rules:
  - when: gpu.index < 2
    shared: {strategy: TimeSlicing, shares: 4}
  - offer: hidden
"""
SHARED, API = "shared-timesliced", "resource.k8s.io/v1"


def test_shares_of_two_namespaces_are_on_one_gpu_and_the_fifth_is_on_the_next(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    with shared(driver, namespace, TWO_GPUS), fresh_namespace(cluster.api) as other:
        uuids = []
        for where, count in ((namespace, 2), (other, 3)):
            make_template(cluster, where, request(device_class=SHARED))
            for number in range(count):
                start(cluster, where, gpu_pod(f"pod-{number}"))
                uuids += uuids_seen(driver, where, f"pod-{number}")
        gpus = sorted(driver.machine.state.gpus)
        assert uuids == [driver.machine.uuid(gpus[0])] * 4 + [driver.machine.uuid(gpus[1])]


def test_a_share_has_one_id_from_the_scheduler_to_the_container(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    with shared(driver, namespace, TWO_GPUS):
        make_claim(cluster, namespace, "share", request(device_class=SHARED))
        start(cluster, namespace, gpu_pod("one", "share"))
        (share,) = given(driver, namespace, "one")
        assert share.share_id is not None
        assert share.held["share_id"] == share.share_id
        cdi = share.held["cdi_device"]
        assert share.share_id in cdi
        assert share.uid in cdi
        kubelet = (driver.node.kubelet_dir / "dra_manager_state").read_text().replace("\\", "")
        assert re.search(rf'"k8s\.{re.escape(DRIVER_NAME)}/claim={cdi}"', kubelet)
        assert re.search(rf'"share_?id":"{share.share_id}"', kubelet.replace(" ", ""), re.IGNORECASE)
        (spec,) = driver.node.cdi_dir.glob(f"*{share.uid}*")
        assert f'"{cdi}"' in spec.read_text()
        told = wait_for(
            cluster.api, paths.resource_claim("share", namespace), lambda claim: "devices" in claim["status"]
        )
        (status,) = told["status"]["devices"]
        assert (status["device"], status["shareID"]) == (share.device, share.share_id)


def with_interval(interval: str) -> Object:
    """A configuration, of a class or of a claim, that asks for a time-slice."""
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}},
    }
    return {"opaque": {"driver": DRIVER_NAME, "parameters": parameters}}


@contextmanager
def class_with_interval(driver: DriverNode, name: str, interval: str) -> Iterator[None]:
    """A class of time-sliced shares whose GPUs get that time-slice, for as long as the block lasts."""
    api = driver.cluster.api
    spec = {**api.get(paths.device_class(SHARED))["spec"], "config": [with_interval(interval)]}
    api.create({"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec})
    try:
        yield
    finally:
        api.delete(paths.device_class(name))


def share_claim(name: str, device_class: str, *configs: Object) -> Object:
    """A claim for a share of that class."""
    devices = {"requests": [request(device_class=device_class)], "config": list(configs)}
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def test_the_time_slice_of_the_class_is_set_with_the_first_share_and_put_back_after_the_last(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    with shared(driver, namespace, TWO_GPUS), class_with_interval(driver, "shared-long", "Long"):
        for name, device_class in (("first", "shared-long"), ("plain", SHARED), ("second", "shared-long")):
            cluster.api.create(share_claim(name, device_class), namespace)
            start(cluster, namespace, gpu_pod(name, name))
            wait_first_gpu(driver, ("default", 3))
        end(cluster, namespace, "first")
        wait_released(driver, cluster.api.get(paths.resource_claim("first", namespace))["metadata"]["uid"])
        wait_first_gpu(driver, ("default", 3))
        end(cluster, namespace, "second")
        wait_first_gpu(driver, ("default", 0))
        end(cluster, namespace, "plain")


def on_first(driver: DriverNode, device_class: str, more: str = "true") -> Object:
    """A request for a device of the first GPU on the bus."""
    pci = min(driver.machine.state.gpus)
    bus = f'device.attributes["resource.kubernetes.io"].pciBusID == "{pci}"'
    return request(device_class=device_class, selectors=[{"cel": {"expression": f"{bus} && {more}"}}])


def test_whole_partitions_and_shares_of_one_gpu_exclude_each_other_and_come_back(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    forms = {"sliced": SHARED, "cut": "mig-small", "whole": "gpu.nvidia.com", "mps": "shared-mps"}
    with shared(driver, namespace, (NODE_CONFIGS / "all-tiers.yaml").read_text()):
        first = gpu_device_name(min(driver.machine.state.gpus))
        for name, device_class in forms.items():
            asked = on_first(driver, device_class)
            if name == "mps":
                asked["exactly"]["capacity"] = {"requests": {"memory": "10Gi"}}
            template(cluster, namespace, name, asked)
        before = ""
        for name in (*forms, "sliced-again"):
            cluster.api.create(pod_of(name, name.removesuffix("-again")), namespace)
            if before:
                assert "cannot allocate all claims" in wait_refused(cluster, namespace, name)
                end(cluster, namespace, before)
            wait_running(cluster, namespace, name)
            (held,) = given(driver, namespace, name)
            assert held.device.startswith(first)
            wait_cut(driver, {0: [(6, 1)]} if name == "cut" else {})
            wait_first_gpu(driver, ("exclusive-process" if name == "mps" else "default", 0))
            if name == "mps":
                assert mps_environment(driver, namespace, name) == dict(
                    zip(LIMITS, ("25", "0=10240M"), strict=True)
                )
            before = name
        end(cluster, namespace, before)
