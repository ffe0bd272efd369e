"""Shares of GPUs: what the first one sets and the last one puts back, and what each claim is handed."""

from pathlib import Path

from kubeletplugin.devices.host.driver_files import MPS_PROGRAMS
from tests.kubeletplugin.cdi_schema import validate
from tests.kubeletplugin.claims.metadata.told import mounts as metadata_mounts
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.held import cuda_uuid
from tests.kubeletplugin.share_node import H100_MIB, class_slicing, mps


def test_a_share_beside_another_only_asks_for_the_daemon(node: FakeNode) -> None:
    node.prepared_shares("a", node.shared("mps-4"))
    node.steps.clear()
    node.prepared_shares("b", node.shared("mps-4"))
    assert node.steps == ["begun", "daemon", "committed", "metadata written", "spec written"]


def test_the_time_slice_is_set_once_and_put_back_with_the_last_share(node: FakeNode) -> None:
    refs = [node.prepared_shares(name, node.shared("ts-4"), config=class_slicing("Long")) for name in "ab"]
    assert (node.interval(), node.time_slices.calls, node.mps.ensured) == ("Long", 1, 0)
    refs.append(node.prepared_shares("shorter", node.shared("ts-4"), config=class_slicing("Short")))
    for ref, interval in zip(reversed(refs), ("Short", "Long", "Long"), strict=True):
        assert node.interval() == interval
        node.unprepare(ref)
    node.assert_as_before()


def test_the_share_id_goes_to_the_journal_the_spec_and_the_answer(node: FakeNode) -> None:
    ref = node.claim_shares("a", node.shared("mps-4"))
    (given,) = node.api[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"]
    (answer,) = node.prepare(ref)
    name = f"{ref.uid}-{node.shared('mps-4')}-{given['shareID']}"
    assert answer.share_id == given["shareID"]
    assert answer.cdi_device_ids == (f"k8s.gpu.nvidia.com/claim={name}",)
    assert node.entry(ref).devices[0].share_id == given["shareID"]
    spec = node.spec(ref)
    validate(spec)
    assert [device["name"] for device in spec["devices"]] == [name]


def test_a_client_finds_its_daemon_and_its_limits(node: FakeNode) -> None:
    ref = node.prepared_shares("a", node.shared("mps-4"))
    assert node.variables(ref) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={H100_MIB // 4}M",
    }
    mounts = node.spec(ref)["devices"][0]["containerEdits"]["mounts"]
    assert [(one["hostPath"], one["containerPath"]) for one in mounts] == [
        (f"/run/gpu.nvidia.com/mps/{node.whole()}/clients", "/tmp/nvidia-mps"),
        (f"/run/gpu.nvidia.com/mps/{node.whole()}/shm", "/dev/shm"),
        *((str(file), path) for path, file in metadata_mounts(node, ref).items()),
    ]
    assert [one["options"][0] for one in mounts] == ["ro", "rw", "ro"]


def test_a_client_gets_no_program_that_ends_daemons_and_others_keep_theirs(node: FakeNode) -> None:
    """Whoever has a whole GPU may well run MPS on it."""
    client, whole_gpu = node.claim_shares("a", node.shared("mps-4")), node.claim("b", 1)
    for ref in (client, whole_gpu, client):
        node.prepare(ref)
    programs = [
        {Path(one["containerPath"]).name for one in node.spec(ref)["containerEdits"]["mounts"]}
        & {"nvidia-smi", *MPS_PROGRAMS}
        for ref in (client, whole_gpu)
    ]
    assert programs == [{"nvidia-smi"}, {"nvidia-smi", *MPS_PROGRAMS}]


def test_admin_access_beside_shares_touches_nothing(node: FakeNode) -> None:
    watcher = node.claim_shares("watch", node.shared("mps-4"))
    (result,) = node.api[watcher.namespace, watcher.name]["status"]["allocation"]["devices"]["results"]
    result |= {"adminAccess": True}
    node.prepare(watcher)
    node.assert_as_before()
    assert node.variables(watcher) == {}
    ref = node.prepared_shares("a", node.shared("mps-4"))
    node.unprepare(watcher)
    assert node.daemon_limits() == (25, (H100_MIB // 4,))
    node.unprepare(ref)
    node.assert_as_before()


def test_the_pods_of_one_claim_share_its_gpu_by_mps(node: FakeNode) -> None:
    settings = mps(defaultActiveThreadPercentage=40, defaultPinnedDeviceMemoryLimit="8Gi")
    ref = node.claim("own", 0, config=settings)
    first = node.prepare(ref)
    assert node.prepare(ref) == first, "the kubelet asks again for each pod"
    assert (node.mps.started, node.daemon_limits(), node.compute_mode()) == (
        1,
        (40, (8192,)),
        "exclusive-process",
    )
    assert not node.daemon().multi_user
    assert node.variables(ref) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
    }
    assert first[0].share_id is None
    node.unprepare(ref)
    node.assert_as_before()


def test_one_daemon_serves_the_gpus_that_a_claim_shares_alike(node: FakeNode) -> None:
    ref = node.prepared("own", 2, 0, config=mps(multiUser=True))
    assert list(node.mps.running) == [node.whole(0)]
    assert node.daemon().devices == tuple(sorted((node.uuid(0), node.uuid(2))))
    assert node.daemon().multi_user
    assert (node.compute_mode(0), node.compute_mode(2)) == ("exclusive-process", "exclusive-process")
    pipes = {
        device["containerEdits"]["mounts"][0]["hostPath"].split("/")[-2]
        for device in node.spec(ref)["devices"]
    }
    assert pipes == {node.whole(0)}
    node.unprepare(ref)
    node.assert_as_before()


def test_a_partition_that_its_claim_shares_has_a_daemon_of_its_own_and_no_mode(node: FakeNode) -> None:
    device = node.part()
    ref = node.prepared_devices("own", device, config=mps(kind="MigDeviceConfig"))
    (running,) = node.mps.running.values()
    held = node.entry(ref).devices[0]
    assert (running.name, running.devices) == (device, (cuda_uuid(held),))
    assert running.devices[0].startswith("MIG-")
    assert node.compute_mode() == "default"
    node.unprepare(ref)
    node.assert_as_before()
    assert not node.mig_enabled()


def test_two_shares_of_a_partition_in_one_claim_are_one_partition(node: FakeNode) -> None:
    device = f"{node.partition(0, '1g.10gb', 6)}-ts-4"
    ref = node.claim_shares("two", device, device)
    assert len(node.prepare(ref)) == 2
    assert len(node.instances()) == 1
    assert (node.time_slices.calls, node.recorded()) == (0, []), "a partition has no time-slice to set"
    node.unprepare(ref)
    assert node.starts() == []
