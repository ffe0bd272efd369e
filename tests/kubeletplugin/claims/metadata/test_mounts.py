"""Where a container finds the file of a request, whatever the claim's annotation says."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kubeletplugin.claims.metadata import document, metadata_mounts, possible_requests
from kubeletplugin.devices.kinds.kind import HeldKind
from tests.gpus import AttributeValue, Version
from tests.kubeletplugin.claims.metadata.told import documents
from tests.kubeletplugin.held import held_kinds
from tests.plugin import Entry, HeldDevice, MetadataClaim, MetadataDevice, ShareRecord, device_attributes
from tests.toy_kind.held import HeldToy

FOLDER = Path("/plugins/gpu.nvidia.com/metadata")
BASE = "/var/run/kubernetes.io/dra-device-attributes"


def held(request: str, name: str) -> HeldDevice:
    return HeldDevice(request, "p", name, "0000:01:00.0", "GPU-1", f"u-{name}", kind="whole")


def entry(*devices: HeldDevice, pod_claim_name: str = "") -> Entry:
    return Entry("u", "team", "train", "prepared", 1, devices, pod_claim_name=pod_claim_name)


def paths(claim: Entry) -> dict[str, str]:
    return {name: mount.container_path for name, mount in metadata_mounts(claim, FOLDER).items()}


def test_a_claim_that_the_pod_names_lies_under_its_own_name_and_one_of_a_template_under_the_pods() -> None:
    assert paths(entry(held("gpu", "a"))) == {
        "u-a": f"{BASE}/resourceclaims/train/gpu/gpu.nvidia.com-metadata.json"
    }
    assert paths(entry(held("gpu", "a"), pod_claim_name="gpus")) == {
        "u-a": f"{BASE}/resourceclaimtemplates/gpus/gpu/gpu.nvidia.com-metadata.json"
    }


def test_each_request_has_one_file_which_its_first_device_brings_read_only() -> None:
    found = metadata_mounts(entry(held("a/sub", "1"), held("b", "2"), held("a/sub", "3")), FOLDER)

    assert {name: mount.host_path for name, mount in found.items()} == {
        "u-1": f"{FOLDER}/u_a.json",
        "u-2": f"{FOLDER}/u_b.json",
    }
    assert not any(mount.is_writable for mount in found.values())


@pytest.mark.parametrize("name", ["../../../../etc", "a/b", "A", "-a", "a" * 64, "a\n", "ä"])
def test_an_annotation_that_can_be_no_name_in_a_pod_leads_nowhere_else(name: str) -> None:
    assert paths(entry(held("gpu", "a"), pod_claim_name=name)) == {
        "u-a": f"{BASE}/resourceclaims/train/gpu/gpu.nvidia.com-metadata.json"
    }


@pytest.mark.parametrize("request_name", ["", "..", "../x", "a\n", "Gpu"])
def test_a_request_that_is_no_label_has_no_file(request_name: str) -> None:
    claim = entry(held(request_name, "a"))
    assert (paths(claim), possible_requests(claim)) == ({}, frozenset())


@pytest.mark.parametrize(
    "claim",
    [replace(entry(held("gpu", "a")), name=""), entry(replace(held("gpu", "a"), published_as="gpu-0"))],
    ids=["of no known name", "of another driver"],
)
def test_a_claim_of_which_too_little_is_known_has_no_files_but_may_have_had_some(claim: Entry) -> None:
    assert paths(claim) == {}
    assert possible_requests(claim) == {"gpu"}


CLAIM = MetadataClaim("team", "vm-gpus-x7k2p", "u-1", "gpus")


def test_the_versions_differ_in_their_name_alone_and_the_newest_stands_first() -> None:
    newest, older = documents(document(CLAIM, "gpu", [MetadataDevice("p", "d", {})]).decode())

    assert newest.pop("apiVersion") == "metadata.resource.k8s.io/v1beta1"
    assert older.pop("apiVersion") == "metadata.resource.k8s.io/v1alpha1"
    assert newest == older


def test_it_names_the_claim_the_request_and_its_devices_in_their_order() -> None:
    devices = [MetadataDevice("p", name, {"z": {"int": 1}, "a": {"bool": True}}) for name in ("d-2", "d-1")]
    found, _ = documents(document(CLAIM, "gpu/large", devices).decode())

    assert found["kind"] == "DeviceMetadata"
    assert found["metadata"] == {"name": "vm-gpus-x7k2p", "namespace": "team", "uid": "u-1", "generation": 1}
    assert found["podClaimName"] == "gpus"
    (request,) = found["requests"]
    assert request["name"] == "gpu/large"
    assert [(one["driver"], one["pool"], one["name"]) for one in request["devices"]] == [
        ("gpu.nvidia.com", "p", "d-2"),
        ("gpu.nvidia.com", "p", "d-1"),
    ]
    assert list(request["devices"][0]["attributes"]) == ["a", "z"]


HELD = HeldDevice("gpu", "p", "gpu-0000-01-00-0", "0000:01:00.0", "GPU-1", "u-d", kind="whole")


@dataclass
class Told(HeldToy):
    """A kind that tells what it is given."""

    attributes: dict[str, AttributeValue]

    def metadata(self, _held: HeldDevice) -> dict[str, AttributeValue]:
        """That."""
        return self.attributes


def kind_of(held: HeldDevice) -> HeldKind:
    return held_kinds().of(held)


def test_what_a_kind_tells_stands_before_what_was_published() -> None:
    told = device_attributes(
        HELD,
        Told(
            {
                "resource.kubernetes.io/pciBusID": "0000:01:00.4",
                "group": 12,
                "v": Version("1.2.3"),
                "on": True,
            }
        ),
        {"resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"}},
    )
    assert told == {
        "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.4"},
        "group": {"int": 12},
        "v": {"version": "1.2.3"},
        "on": {"bool": True},
    }


def test_a_share_tells_its_limits() -> None:
    mps = ShareRecord("g", "MPS", 1, 1 << 30, active_thread_percentage=25, pinned_memory_mib=1024)
    held = replace(HELD, share=mps, memory_limit_bytes=1 << 29)
    told = device_attributes(held, kind_of(HELD), {"sharing": {"string": "none"}})

    assert told["sharing"] == {"string": "mps"}
    assert told["activeThreadPercentage"] == {"int": 25}
    assert told["pinnedMemoryMiB"] == {"int": 1024}
    assert told["shares"] == {"int": 1}
    assert told["memoryBytes"] == {"int": 1 << 30}
    assert told["memoryLimitBytes"] == {"int": 1 << 29}


def test_there_are_never_more_than_the_api_allows_and_those_of_prepare_are_among_them() -> None:
    published = {f"a{index:02}": {"int": index} for index in range(32)}
    told = device_attributes(HELD, kind_of(HELD), published)

    assert len(told) == 32
    assert {"uuid", "resource.kubernetes.io/pciBusID"} <= told.keys()
