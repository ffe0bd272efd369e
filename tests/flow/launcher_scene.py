"""What KubeVirt makes of a virtual machine: the pod that runs it, and what that looks for inside."""

import json
from collections.abc import Iterator, Mapping

from tests.clusters import DriverNode, Object
from tests.flow.metadata_scene import metadata_files
from tests.gpus import PciAddress

VIRT_LAUNCHER = 107
"""The user that virt-launcher runs as."""

_PCI, _MDEV = "resource.kubernetes.io/pciBusID", "mdevUUID"
_READ_BY_KUBEVIRT = "metadata.resource.k8s.io/v1alpha1"


def devices_of(machine: Object) -> list[Object]:
    """The GPUs and host devices of a VirtualMachineInstance that are claimed."""
    devices = machine["spec"]["domain"]["devices"]
    return [*devices.get("gpus", ()), *devices.get("hostDevices", ())]


def launcher_pod(machine: Object) -> Object:
    """The pod of a VirtualMachineInstance as virt-controller renders it, as far as claims matter."""
    claims = [{"name": one["claimName"], "request": one["requestName"]} for one in devices_of(machine)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"virt-launcher-{machine['metadata']['name']}"},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsUser": VIRT_LAUNCHER,
                "runAsGroup": VIRT_LAUNCHER,
                "fsGroup": VIRT_LAUNCHER,
                "runAsNonRoot": True,
            },
            "resourceClaims": machine["spec"]["resourceClaims"],
            "containers": [
                {
                    "name": "compute",
                    "image": "localhost/busybox:1",
                    "imagePullPolicy": "Never",
                    "resources": {"claims": claims},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "runAsNonRoot": True,
                        "runAsUser": VIRT_LAUNCHER,
                    },
                }
            ],
        },
    }


def found_by_kubevirt(driver: DriverNode, namespace: str, machine: Object) -> dict[str, str]:
    """For each device of the machine what KubeVirt would hand to it: an mdev's UUID, or a PCI address."""
    pod = launcher_pod(machine)["metadata"]["name"]
    files = metadata_files(driver.cluster, namespace, pod)
    claims = {one["name"]: one for one in machine["spec"]["resourceClaims"]}
    return {one["name"]: _source(_told(files, claims[one["claimName"]], one)) for one in devices_of(machine)}


def _told(files: Mapping[str, str], claim: Object, device: Object) -> Object:
    """The one device in the one file of a request, as pkg/dra of KubeVirt 1.9 looks for it."""
    name = claim.get("resourceClaimName")
    folder = f"resourceclaims/{name}" if name else f"resourceclaimtemplates/{claim['name']}"
    (text,) = (text for path, text in files.items() if path.startswith(f"{folder}/{device['requestName']}/"))
    told = next(one for one in _objects(text) if one["apiVersion"] == _READ_BY_KUBEVIRT)
    (request,) = (one for one in told["requests"] if one["name"] == device["requestName"])
    (found,) = request["devices"]
    return dict(found["attributes"])


def _objects(text: str) -> Iterator[Object]:
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        found, end = decoder.raw_decode(rest)
        yield found
        rest = rest[end:].lstrip()


def _source(attributes: Object) -> str:
    value = attributes.get(_MDEV) or attributes[_PCI]
    return str(value["string"])


def group_of(driver: DriverNode, pci: str) -> str:
    """The number of the IOMMU group of a function."""
    folder = driver.folder / "sys/bus/pci/devices" / str(PciAddress.parse(pci)) / "iommu_group"
    return folder.resolve().name
