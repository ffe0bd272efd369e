"""The checkpoint of NVIDIA's driver is read as that driver wrote it, and nothing in it is trusted."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.migration.checkpoint import NotUnderstood, PreparedClaim, decode, read_checkpoint
from tests.clusters import Object
from tests.kubeletplugin.migration.nvidia_state import checkpoint, claim, compact, gpu, partition, told

VECTOR = Path(__file__).resolve().parents[2] / "vectors" / "nvidia-driver" / "checkpoint.json"
UID = "8c79cff1-4631-4c6e-b65b-82a9519bd130"
OTHER = "7b81f9de-9337-410d-b95c-e770431cfb4c"
PLAIN = gpu("GPU-1", told(UID, "node-a", "gpu-0"))


def only(data: bytes) -> PreparedClaim:
    (found,) = decode(data).claims
    return found


def problem(one: Object) -> str:
    return only(checkpoint({UID: one})).problem


def test_what_that_driver_wrote_is_understood() -> None:
    found = read_checkpoint(VECTOR)
    assert found is not None
    assert found.boot_id == "7f81a337-fa25-4f59-b4f9-eeb236ffda9b"
    assert [(one.uid, one.problem, one.pods) for one in found.claims] == [
        (OTHER, "", ("p-train-b",)),
        (UID, "", ("p-train-a",)),
    ]
    (device,) = found.claims[1].devices
    assert (device.kind, device.uuid) == ("gpu", "GPU-01000100-0000-0000-0000-000000000000")
    assert device.cdi_ids == (f"k8s.gpu.nvidia.com/claim={UID}-gpu-0",)
    assert (device.result.pool, device.result.device, device.result.request) == ("node-0", "gpu-0", "gpu")


def test_a_file_of_the_first_layout_alone_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    path.write_bytes(checkpoint({UID: claim([PLAIN])}, v2=False))
    found = read_checkpoint(path)
    assert found is not None
    assert (found.claims[0].uid, found.claims[0].problem, found.boot_id) == (UID, "", "")


def test_a_changed_byte_and_a_torn_file_are_noticed() -> None:
    whole = VECTOR.read_bytes()
    for at in range(0, len(whole), 97):
        other = b"7" if whole[at : at + 1] != b"7" else b"8"
        for data in (whole[:at], whole[:at] + other + whole[at + 1 :]):
            with pytest.raises(NotUnderstood):
                decode(data)


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
        lambda value: json.dumps({"checksum": 1, "v1": value}).encode()
    )
)
def test_whatever_the_file_holds_it_is_read_or_refused(data: bytes) -> None:
    with pytest.raises(NotUnderstood):
        decode(data)


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize(
    "data",
    [
        b'{"checksum":' + b"9" * 5000 + b"}",
        b'{"checksum":1,"v2":' + b"[" * 100_000 + b"}",
        b'{"checksum":1,"checksum":2}',
        b'{"version":"v9","checksum":1}',
        b"{" + b" " * (1 << 22) + b"}",
    ],
)
def test_hostile_files_are_refused(data: bytes) -> None:
    with pytest.raises(NotUnderstood):
        decode(data)


def test_a_layout_of_a_later_version_is_refused_by_its_name() -> None:
    document = json.loads(checkpoint({UID: claim([PLAIN])}))
    with pytest.raises(NotUnderstood, match="unknown layout \\(v3\\)"):
        decode(compact({**document, "v3": {}}).encode())


def test_whole_gpus_and_partitions_are_understood() -> None:
    part = partition("MIG-1", "GPU-1", 0, 7, 0, told(UID, "node-a", "gpu-0-mig-1g10gb-19-0", "part"))
    found = only(checkpoint({UID: claim([PLAIN, part])}))
    assert found.problem == ""
    assert [(one.kind, one.uuid, one.gpu_instance_id) for one in found.devices] == [
        ("gpu", "GPU-1", None),
        ("mig", "MIG-1", 7),
    ]


def test_a_claim_that_is_half_prepared_is_known_by_its_name() -> None:
    begun = {**claim([PLAIN]), "checkpointState": "PrepareStarted", "name": "train", "namespace": "team"}
    found = only(checkpoint({UID: begun}))
    assert (found.namespace, found.name, found.pods) == ("team", "train", ("train",))
    assert found.problem == "its preparation was started and not finished"


def configured(**parameters: Any) -> Object:
    opaque = {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig", **parameters}}
    return claim([PLAIN], config=[{"source": "FromClaim", "requests": [], "opaque": opaque}])


def test_sharing_that_changed_nothing_is_no_problem() -> None:
    assert problem(configured()) == ""
    assert problem(configured(sharing={"strategy": "TimeSlicing"})) == ""
    default = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}}
    assert problem(configured(sharing=default)) == ""


def test_what_only_that_driver_can_take_back_is_a_problem() -> None:
    long = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
    assert "sets a time-slice" in problem(configured(sharing=long))
    assert "share the GPU through 'MPS'" in problem(configured(sharing={"strategy": "MPS"}))
    assert "VfioDeviceConfig" in problem(configured(kind="VfioDeviceConfig"))
    shared = claim([PLAIN])
    shared["preparedDevices"][0]["configState"] = {"mpsControlDaemonID": f"{UID}-abcde"}
    assert "an MPS daemon of that driver" in problem(shared)
    vfio = {
        "gpu": None,
        "mig": None,
        "vfio": {"info": {"uuid": "x"}, "device": told(UID, "node-a", "gpu-vfio-0")},
    }
    assert "of kind 'vfio'" in problem(claim([vfio]))


def test_what_is_not_known_by_name_is_a_problem() -> None:
    more = claim([PLAIN])
    more["fabricManagerPartition"] = 4
    assert "fabricManagerPartition" in problem(more)
    grouped = claim([PLAIN])
    grouped["preparedDevices"][0]["partition"] = 4
    assert "'partition'" in problem(grouped)
    device = {**told(UID, "node-a", "gpu-0"), "Metadata": {"a": 1}}
    assert "'Metadata'" in problem(claim([gpu("GPU-1", device)]))
    null = {**told(UID, "node-a", "gpu-0"), "Metadata": None, "ShareID": None}
    assert problem(claim([gpu("GPU-1", null)])) == ""


def test_an_entry_that_contradicts_itself_is_a_problem() -> None:
    other = claim([PLAIN])
    other["status"]["allocation"]["devices"]["results"][0]["device"] = "gpu-1"
    assert "the prepared device 'gpu-0' is not in" in problem(other)
    less = claim([PLAIN])
    less["preparedDevices"] = []
    assert "does not match the devices" in problem(less)
    without = claim([PLAIN])
    del without["status"]["allocation"]
    assert "allocation is missing" in problem(without)
    assert "malformed" in problem({**claim([PLAIN]), "preparedDevices": [{"devices": [{"gpu": {}}]}]})
    assert only(checkpoint({"../../etc": claim([PLAIN])})).problem == "its UID is not valid"
