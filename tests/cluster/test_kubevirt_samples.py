"""KubeVirt takes the samples of virtual machines, and its own code finds the devices of their claims."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from kubeletplugin.claims.metadata import (
    CONTAINER_FOLDER,
    document,
    metadata_mounts,
    pod_claim_name,
    requests_of,
)
from tests.cluster.virt_launcher import Refused, host_devices
from tests.clusters import Object
from tests.gpus import AttributeValue
from tests.kubeletplugin.claims.metadata.told import mounts
from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode
from tests.plugin import Entry, HeldDevice, MetadataClaim, MetadataDevice, device_attributes
from tests.toy_kind.held import HeldToy

SAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "kubevirt"
FILES = sorted(SAMPLES.glob("*.yaml"))
MDEV = "aa618089-8b16-4d01-a136-25a0f3c73123"


class Told(HeldToy):
    """A kind of which only what it tells matters."""

    def __init__(self, attributes: Mapping[str, AttributeValue]) -> None:
        self.attributes = attributes

    def metadata(self, _held: HeldDevice) -> Mapping[str, AttributeValue]:
        """What it was given."""
        return self.attributes


def objects(sample: Path) -> tuple[Object, Object]:
    """The claim, or its template, and the virtual machine of a sample."""
    claim, machine = yaml.safe_load_all(sample.read_text())
    return claim, machine


def prepared(sample: Path) -> Entry:
    """The sample's claim, with a device for each request."""
    claim, machine = objects(sample)
    (named,) = machine["spec"]["resourceClaims"]
    is_template = claim["kind"] == "ResourceClaimTemplate"
    assert (
        named["resourceClaimTemplateName" if is_template else "resourceClaimName"]
        == claim["metadata"]["name"]
    )
    spec = claim["spec"]["spec"] if is_template else claim["spec"]
    held = [
        HeldDevice(request["name"], "p", f"d-{index}", f"0000:8{index}:00.0", "", f"u-d-{index}", kind="vm")
        for index, request in enumerate(spec["devices"]["requests"])
    ]
    name = "machine-gpus-x7k2p" if is_template else claim["metadata"]["name"]
    template = named["name"] if is_template else ""
    return Entry("u", "team", name, "prepared", 1, tuple(held), pod_claim_name=template)


def files(entry: Entry, *, mdev: bool = False) -> dict[str, bytes]:
    """What the containers of a claim find, by path below the folder that they know."""
    mounts = metadata_mounts(entry, Path("/metadata"))
    claim = MetadataClaim(entry.namespace, entry.name, entry.uid, pod_claim_name(entry))
    found = {}
    for devices in requests_of(entry).values():
        (held,) = devices
        own: dict[str, AttributeValue] = {"resource.kubernetes.io/pciBusID": held.pci}
        attributes = device_attributes(held, Told(own | ({"mdevUUID": MDEV} if mdev else {})), {})
        path = mounts[held.cdi_device].container_path.removeprefix(f"{CONTAINER_FOLDER}/")
        found[path] = document(claim, held.request, [MetadataDevice(held.pool, held.device, attributes)])
    return found


def machine_of(sample: Path, folder: Path) -> Path:
    """A manifest with the sample's virtual machine alone."""
    folder.mkdir(exist_ok=True)
    manifest = folder / "machine.yaml"
    manifest.write_text(yaml.safe_dump(objects(sample)[1]))
    return manifest


@pytest.mark.parametrize("sample", FILES, ids=lambda file: file.stem)
def test_kubevirt_finds_the_gpu_of_each_request(sample: Path, tmp_path: Path) -> None:
    entry = prepared(sample)

    found = host_devices(machine_of(sample, tmp_path), files(entry), tmp_path / "told")

    assert sorted(found.values()) == [held.pci for held in entry.devices]


def test_a_mediated_device_is_handed_over_by_its_uuid_whatever_address_it_has(tmp_path: Path) -> None:
    sample = SAMPLES / "vgpu.yaml"
    found = host_devices(machine_of(sample, tmp_path), files(prepared(sample), mdev=True), tmp_path / "told")
    assert list(found.values()) == [MDEV]


def test_kubevirt_says_what_it_looked_for_where_a_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"resourceclaimtemplates/gpus/gpu/\*-metadata.json"):
        host_devices(machine_of(SAMPLES / "passthrough.yaml", tmp_path), {}, tmp_path / "told")


def test_a_field_that_kubevirt_does_not_know_is_refused(tmp_path: Path) -> None:
    manifest = machine_of(SAMPLES / "passthrough.yaml", tmp_path)
    manifest.write_text(manifest.read_text().replace("requestName", "request"))
    with pytest.raises(Refused, match='unknown field "request"'):
        host_devices(manifest, {}, tmp_path / "told")


def test_what_prepare_writes_leads_kubevirt_to_the_gpu(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    node = PassthroughNode(tmp_path / "node")
    ref = node.vm("virt-launcher-trains-gpus-x7k2p", 0)
    claim = node.api[ref.namespace, ref.name]
    claim["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpus"}
    claim["status"]["allocation"]["devices"]["results"][0]["request"] = "gpu"
    node.prepare(ref)
    laid = {
        path.removeprefix(f"{CONTAINER_FOLDER}/"): file.read_bytes()
        for path, file in mounts(node, ref).items()
    }

    found = host_devices(machine_of(SAMPLES / "passthrough.yaml", tmp_path), laid, tmp_path / "told")

    assert list(found.values()) == [str(node.gpus[0])]
    node.unprepare(ref)
    node.stop()
