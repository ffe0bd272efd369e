"""The metadata files of claims come with prepare, go with unprepare, and are made whole in between."""

import pytest

from tests.kubeletplugin.claims.metadata.told import FOLDER, files, mounts, told
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import record_of

ADDRESS = "resource.kubernetes.io/pciBusID"


def test_a_container_reads_what_was_published_of_its_gpu(node: FakeNode) -> None:
    ref = node.claim("train", 0)
    device = node.api[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"][0]["device"]
    node.published_attributes[device] = {"productName": {"string": "H100"}, "index": {"int": 0}}
    node.prepare(ref)

    found = told(node, ref, "resourceclaims/train/gpu-0/gpu.nvidia.com-metadata.json")

    assert found["metadata"] == {"name": "train", "namespace": "team", "uid": ref.uid, "generation": 1}
    (read,) = found["requests"][0]["devices"]
    assert read["name"] == device
    assert read["attributes"] == {
        "index": {"int": 0},
        "productName": {"string": "H100"},
        ADDRESS: {"string": str(node.gpus[0])},
        "uuid": {"string": node.machine.uuid(node.gpus[0])},
    }


def test_the_claim_of_a_template_lies_where_the_pod_knows_it(node: FakeNode) -> None:
    ref = node.claim("vm-gpus-x7k2p", 0)
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpus"}
    node.api[ref.namespace, ref.name]["metadata"]["annotations"] = annotations
    node.prepare(ref)

    found = told(node, ref, "resourceclaimtemplates/gpus/gpu-0/gpu.nvidia.com-metadata.json")

    assert found["podClaimName"] == "gpus"
    assert list(mounts(node, ref)) == [
        f"{FOLDER}/resourceclaimtemplates/gpus/gpu-0/gpu.nvidia.com-metadata.json"
    ]


def test_a_partition_that_was_made_has_the_uuid_that_no_slice_could_tell(node: FakeNode) -> None:
    ref = node.prepared_devices("train", node.part(), node.partition(1, "3g.40gb", 4))

    entry = node.entry(ref)
    for index, held in enumerate(entry.devices):
        found = told(node, ref, f"resourceclaims/train/gpu-{index}/gpu.nvidia.com-metadata.json")
        record = record_of(held)
        assert record is not None
        assert found["requests"][0]["devices"][0]["attributes"]["uuid"] == {"string": record.uuid}


def test_files_can_be_read_by_a_process_that_is_not_root_and_nothing_else_of_the_folder(
    node: FakeNode,
) -> None:
    ref = node.prepared("train", 0)

    (path,) = mounts(node, ref).values()
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o077 == 0


def test_unprepare_removes_the_files_of_its_claim_alone(node: FakeNode) -> None:
    ref, other = node.claim("train", 0, 1), node.claim("other", 2)
    node.prepare(ref)
    node.prepare(other)

    node.unprepare(ref)

    assert files(node) == [f"{other.uid}_gpu-0.json"]


@pytest.mark.parametrize("by", ["prepare", "the look at specs"])
def test_a_file_that_was_lost_is_written_anew_and_one_that_is_there_stays(node: FakeNode, by: str) -> None:
    ref = node.prepared("train", 0, 1)
    lost, kept = mounts(node, ref).values()
    before, number = lost.read_text(), kept.stat().st_ino
    lost.unlink()

    if by == "prepare":
        node.prepare(ref)
    else:
        node.reconciler.restore_specs()

    assert lost.read_text() == before
    assert kept.stat().st_ino == number


def test_a_restart_keeps_the_files_of_claims_and_sweeps_those_of_nobody(node: FakeNode) -> None:
    ref = node.prepared("train", 0)
    folder = node.boot_files / "metadata"
    (folder / "0f5b2a52-6b35-4d0e-9d4d-6d0d8d2f6c11_gpu.json").write_text("{}")
    (folder / f".tmp-{ref.uid}_gpu-0.json-0123456789ab").write_text("{")
    node.leave()
    node.restart()

    assert files(node) == [f"{ref.uid}_gpu-0.json"]
