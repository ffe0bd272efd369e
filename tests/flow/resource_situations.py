"""Pods that have to wait for extended resources or because of a quota; ``situations`` lists them."""

from tests.flow.scene import Scene, device


def quota_exceeded(scene: Scene) -> None:
    scene.publish(device("a"), device("b"))
    scene.device_class()
    scene.add(
        "ResourceQuota",
        "tenant",
        {"hard": {f"{scene.namespace}.deviceclass.resource.k8s.io/devices": "1"}},
        api_version="v1",
    )
    scene.pod("waiting", template=scene.template("two", scene.exactly(count=2)))


def extended_resource_unknown(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class()
    scene.pod("waiting", limits={f"{scene.driver}/nothing": "1"})


def extended_resource_in_use(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class(extendedResourceName=f"{scene.driver}/gpu")
    scene.holder("theirs")
    scene.pod("waiting", limits={f"{scene.driver}/gpu": "1"})


def init_container_uses_what_the_containers_have(scene: Scene) -> None:
    scene.publish(device("a"), device("b"), device("c"))
    resource = f"{scene.driver}/gpu"
    scene.device_class(extendedResourceName=resource)
    scene.holder("theirs")
    first = {
        "name": "first",
        "image": "localhost/busybox:1",
        "imagePullPolicy": "Never",
        "resources": {"limits": {resource: "2"}},
    }
    scene.pod("waiting", limits={resource: "3"}, initContainers=[first])


def extended_resource_by_the_thousand(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class(extendedResourceName=f"{scene.driver}/gpu")
    scene.pod("waiting", limits={f"{scene.driver}/gpu": "1k"})


def _quota(scene: Scene, resource: str) -> None:
    scene.add("ResourceQuota", "tenant", {"hard": {resource: "1"}}, api_version="v1")


def quota_of_an_extended_resource(scene: Scene) -> None:
    scene.publish(device("a"), device("b"))
    scene.device_class(extendedResourceName=f"{scene.driver}/gpu")
    _quota(scene, f"requests.{scene.driver}/gpu")
    scene.pod("waiting", template=scene.template("two", scene.exactly(count=2)))


def quota_of_an_implicit_resource(scene: Scene) -> None:
    scene.publish(device("a"), device("b"))
    scene.device_class(extendedResourceName=f"{scene.driver}/gpu")
    _quota(scene, f"requests.deviceclass.resource.kubernetes.io/{scene.namespace}")
    scene.pod("waiting", limits={f"{scene.driver}/gpu": "2"})


def quota_of_the_class_behind_a_resource(scene: Scene) -> None:
    scene.publish(device("a"), device("b"))
    scene.device_class()
    _quota(scene, f"{scene.namespace}.deviceclass.resource.k8s.io/devices")
    scene.pod("waiting", limits={f"deviceclass.resource.kubernetes.io/{scene.namespace}": "2"})
