"""Shares of GPUs: what the first one sets and the last one puts back, and what each claim is handed."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.kinds.partition.names import static_device_name
from kubeletplugin.devices.host.driver_files import MPS_PROGRAMS
from tests.kubeletplugin.cdi_schema import validate
from tests.kubeletplugin.claims.metadata.told import mounts as metadata_mounts
from tests.kubeletplugin.cut_node import THREE, foreign, instances, mig_enabled, starts
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.held import cuda_uuid, partition_of
from tests.kubeletplugin.share_node import (
    GIB,
    H100_MIB,
    MIB,
    assert_as_before,
    class_slicing,
    daemon,
    entry_of,
    interval,
    limits,
    mode,
    mps,
    recorded,
    shared,
    slicing,
    spec_of,
    uuid,
    variables,
    whole,
)


def test_the_daemon_starts_with_the_first_share_and_ends_with_the_last(node: FakeNode) -> None:
    refs = [node.claim_shares(f"c-{number}", shared(node, "mps-4")) for number in range(4)]
    for ref in refs:
        node.prepare(ref)
        assert (mode(node), node.mps.started) == ("exclusive-process", 1)
        assert limits(node) == (25, (H100_MIB // 4,))
    assert daemon(node).devices == (uuid(node),)
    assert daemon(node).multi_user, "the pods of other claims run as other users"
    for ref in refs[:-1]:
        node.unprepare(ref)
        assert (mode(node), list(node.mps.running)) == ("exclusive-process", [whole(node)])
    node.unprepare(refs[-1])
    assert_as_before(node)
    assert mode(node, 1) == "default"


def test_a_share_beside_another_only_asks_for_the_daemon(node: FakeNode) -> None:
    node.prepare(node.claim_shares("a", shared(node, "mps-4")))
    node.steps.clear()
    node.prepare(node.claim_shares("b", shared(node, "mps-4")))
    assert node.steps == ["begun", "daemon", "committed", "metadata written", "spec written"]


def test_the_time_slice_is_set_once_and_put_back_with_the_last_share(node: FakeNode) -> None:
    refs = [
        node.claim_shares("a", shared(node, "ts-4"), config=class_slicing("Long")),
        node.claim_shares("b", shared(node, "ts-4"), config=class_slicing("Long")),
        node.claim_shares("c", shared(node, "ts-4")),
    ]
    for ref in refs:
        node.prepare(ref)
        assert (interval(node), node.time_slices.calls) == ("Long", 1)
    assert (node.mps.ensured, mode(node)) == (0, "default")
    node.unprepare(refs[0])
    assert (interval(node), node.time_slices.calls) == ("Long", 1)
    shorter = node.claim_shares("d", shared(node, "ts-4"), config=class_slicing("Short"))
    node.prepare(shorter)
    assert interval(node) == "Short", "the shortest that a class of theirs gives"
    node.unprepare(shorter)
    assert interval(node) == "Long"
    node.unprepare(refs[1])
    assert interval(node) == "Default", "who stays has not asked for one"
    node.unprepare(refs[2])
    assert_as_before(node)


def test_the_share_id_goes_to_the_journal_the_spec_and_the_answer(node: FakeNode) -> None:
    ref = node.claim_shares("a", shared(node, "mps-4"))
    (given,) = node.api[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"]
    (answer,) = node.prepare(ref)
    name = f"{ref.uid}-{shared(node, 'mps-4')}-{given['shareID']}"
    assert answer.share_id == given["shareID"]
    assert answer.cdi_device_ids == (f"k8s.gpu.nvidia.com/claim={name}",)
    assert entry_of(node, ref).devices[0].share_id == given["shareID"]
    spec = spec_of(node, ref)
    validate(spec)
    assert [device["name"] for device in spec["devices"]] == [name]


def test_a_client_finds_its_daemon_and_its_limits(node: FakeNode) -> None:
    ref = node.claim_shares("a", shared(node, "mps-4"))
    node.prepare(ref)
    assert variables(node, ref) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={H100_MIB // 4}M",
    }
    mounts = spec_of(node, ref)["devices"][0]["containerEdits"]["mounts"]
    assert [(one["hostPath"], one["containerPath"]) for one in mounts] == [
        (f"/run/gpu.nvidia.com/mps/{whole(node)}/clients", "/tmp/nvidia-mps"),
        (f"/run/gpu.nvidia.com/mps/{whole(node)}/shm", "/dev/shm"),
        *((str(file), path) for path, file in metadata_mounts(node, ref).items()),
    ]
    assert [one["options"][0] for one in mounts] == ["ro", "rw", "ro"]


def test_a_client_gets_no_program_that_ends_daemons_and_others_keep_theirs(node: FakeNode) -> None:
    """Whoever has a whole GPU may well run MPS on it."""
    client, whole_gpu = node.claim_shares("a", shared(node, "mps-4")), node.claim("b", 1)
    for ref in (client, whole_gpu, client):
        node.prepare(ref)
    programs = [
        {Path(one["containerPath"]).name for one in spec_of(node, ref)["containerEdits"]["mounts"]}
        & {"nvidia-smi", *MPS_PROGRAMS}
        for ref in (client, whole_gpu)
    ]
    assert programs == [{"nvidia-smi"}, {"nvidia-smi", *MPS_PROGRAMS}]


def test_two_shares_of_one_request_count_together(node: FakeNode) -> None:
    device = shared(node, "mps-4")
    one, two = node.claim_shares("one", device), node.claim_shares("two", f"{device}+{device}")
    node.prepare(one)
    answers = node.prepare(two)
    assert len({answer.cdi_device_ids for answer in answers}) == 2
    assert {answer.request_names for answer in answers} == {("gpu-0",)}
    assert limits(node) == (50, (2 * (H100_MIB // 4),)), "as much as the larger one has"
    for position in (0, 1):
        assert variables(node, two, position)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert variables(node, one)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    node.unprepare(two)
    assert limits(node) == (25, (H100_MIB // 4,)), "what nobody has is granted no longer"


def test_admin_access_beside_shares_touches_nothing(node: FakeNode) -> None:
    watcher = node.claim_shares("watch", shared(node, "mps-4"))
    (result,) = node.api[watcher.namespace, watcher.name]["status"]["allocation"]["devices"]["results"]
    result |= {"adminAccess": True}
    node.prepare(watcher)
    assert_as_before(node)
    assert variables(node, watcher) == {}
    ref = node.claim_shares("a", shared(node, "mps-4"))
    node.prepare(ref)
    node.unprepare(watcher)
    assert limits(node) == (25, (H100_MIB // 4,))
    node.unprepare(ref)
    assert_as_before(node)


def test_all_of_a_fractional_gpu_is_a_whole_gpu(node: FakeNode) -> None:
    """The prepared device says nothing of shares, and other claims are kept off."""
    device = shared(node, "mps-frac-mem")
    node.published_memory[device] = 79 * GIB
    ref = node.claim_shares("all", device, consumed={"memory": "79Gi"})
    node.prepare(ref)
    assert entry_of(node, ref).devices[0].share is None
    assert variables(node, ref) == {}
    assert_as_before(node)


@pytest.mark.parametrize("name", ["Short", "Medium", "Long"])
def test_a_claim_may_slice_its_own_gpu(node: FakeNode, name: str) -> None:
    ref = node.claim("own", 1, config=slicing(name))
    node.prepare(ref)
    assert [interval(node, gpu) for gpu in (0, 1)] == ["Default", name]
    node.unprepare(ref)
    assert_as_before(node)


def test_the_pods_of_one_claim_share_its_gpu_by_mps(node: FakeNode) -> None:
    settings = mps(defaultActiveThreadPercentage=40, defaultPinnedDeviceMemoryLimit="8Gi")
    ref = node.claim("own", 0, config=settings)
    first = node.prepare(ref)
    assert node.prepare(ref) == first, "the kubelet asks again for each pod"
    assert (node.mps.started, limits(node), mode(node)) == (1, (40, (8192,)), "exclusive-process")
    assert not daemon(node).multi_user
    assert variables(node, ref) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
    }
    assert first[0].share_id is None
    node.unprepare(ref)
    assert_as_before(node)


def test_one_daemon_serves_the_gpus_that_a_claim_shares_alike(node: FakeNode) -> None:
    ref = node.claim("own", 2, 0, config=mps(multiUser=True))
    node.prepare(ref)
    assert list(node.mps.running) == [whole(node, 0)]
    assert daemon(node).devices == tuple(sorted((uuid(node, 0), uuid(node, 2))))
    assert daemon(node).multi_user
    assert (mode(node, 0), mode(node, 2)) == ("exclusive-process", "exclusive-process")
    pipes = {
        device["containerEdits"]["mounts"][0]["hostPath"].split("/")[-2]
        for device in spec_of(node, ref)["devices"]
    }
    assert pipes == {whole(node, 0)}
    node.unprepare(ref)
    assert_as_before(node)


def test_a_partition_that_its_claim_shares_has_a_daemon_of_its_own_and_no_mode(node: FakeNode) -> None:
    device = node.partition(0, "1g.10gb", 6)
    ref = node.claim_devices("own", device, config=mps(kind="MigDeviceConfig"))
    node.prepare(ref)
    (running,) = node.mps.running.values()
    held = entry_of(node, ref).devices[0]
    assert (running.name, running.devices) == (device, (cuda_uuid(held),))
    assert running.devices[0].startswith("MIG-")
    assert mode(node) == "default"
    node.unprepare(ref)
    assert_as_before(node)
    assert not mig_enabled(node)


def test_mps_of_a_gpu_and_of_a_partition_in_one_claim_are_two_daemons(node: FakeNode) -> None:
    """CUDA sees one partition and nothing beside it."""
    foreign(node, THREE, 4, 4)
    devices = static_device_name(node.gpus[0], "3g.40gb", 4), whole(node, 1)
    both = [*mps(kind="MigDeviceConfig"), *mps()]
    ref = node.claim_devices("both", *devices, config=both)
    node.prepare(ref)
    assert node.mps.running.keys() == set(devices)
    assert (mode(node, 0), mode(node, 1)) == ("default", "exclusive-process")
    node.unprepare(ref)
    assert_as_before(node)


def test_the_first_share_makes_the_partition_and_the_last_destroys_it(node: FakeNode) -> None:
    device = f"{node.partition(0, '3g.40gb', 4)}-mps-2"
    refs = [node.claim_shares(name, device) for name in "ab"]
    for ref in refs:
        node.prepare(ref)
        assert starts(node) == [4]
    first, second = (partition_of(entry_of(node, ref).devices[0]) for ref in refs)
    assert first is not None
    assert first == second
    (running,) = node.mps.running.values()
    assert (running.name, running.devices) == (device.removesuffix("-mps-2"), (first.uuid,))
    assert running.pinned_memory_mib == (first.memory_bytes // 2 // MIB,)
    assert mode(node) == "default"
    node.unprepare(refs[0])
    assert starts(node) == [4]
    assert node.prepare(refs[1]), "it is still whole"
    node.unprepare(refs[1])
    assert starts(node) == []
    assert_as_before(node)
    assert not mig_enabled(node)


def test_two_shares_of_a_partition_in_one_claim_are_one_partition(node: FakeNode) -> None:
    device = f"{node.partition(0, '1g.10gb', 6)}-ts-4"
    ref = node.claim_shares("two", device, device)
    assert len(node.prepare(ref)) == 2
    assert len(instances(node)) == 1
    assert (node.time_slices.calls, recorded(node)) == (0, []), "a partition has no time-slice to set"
    node.unprepare(ref)
    assert starts(node) == []
