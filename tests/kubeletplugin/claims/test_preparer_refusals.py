"""What the kubelet is told when a claim cannot be prepared, and that nothing is left behind."""

import json
from pathlib import Path
from typing import Any

import pytest

from driver.errors import HardwareChanged
from kubeletplugin.kubelet.wire.claim_call import Call
from tests.gpus import (
    DRIVER_NAME,
    ClaimBlocked,
    ClaimRefused,
    NodeIncomplete,
    NvmlError,
    StorageError,
    gpu_device_name,
)
from tests.kubeletplugin.fake_node import POOL, FakeNode
from tests.kubeletplugin.fake_roots import bind_again
from tests.plugin import ClaimRef, KeyedLocks, LateCall, boottime_ns, claim_key

MACHINE = "a30-quad"


def test_a_gpu_that_was_exchanged_since_publication_is_refused(node: FakeNode) -> None:
    node.published[gpu_device_name(node.gpus[1])] = "GPU-00000000-0000-0000-0000-000000000000"

    with pytest.raises(HardwareChanged, match=r"the GPU was replaced: delete the pod.*\(permanent\)"):
        node.prepare(node.claim("train", 1))

    assert node.journal.entries() == ()


def test_a_gpu_that_was_exchanged_under_a_prepared_claim_is_refused(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    node.prepare(ref)
    node.machine.replace_board(node.gpus[1])
    bind_again(node.sysfs, node.gpus[1])

    with pytest.raises(HardwareChanged):
        node.prepare(ref)
    node.unprepare(ref)


@pytest.mark.parametrize("uid", ["", "../../etc/cron.d/x", "a/b", "a\x00b", "u" * 64])
def test_a_uid_that_cannot_name_a_file_is_refused(node: FakeNode, uid: str) -> None:
    with pytest.raises(ClaimRefused, match="is not a valid UID"):
        node.prepare(ClaimRef("team", "train", uid))


def test_a_late_prepare_does_not_bring_back_an_unprepared_claim(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    late = node.call(boottime_ns())

    def unprepare() -> None:
        node.unprepare(ref)

    node.before_get = unprepare

    with pytest.raises(LateCall, match="was unprepared while this call waited"):
        node.prepare(ref, late)

    node.before_get = lambda: None
    assert not node.spec_path(ref).exists()
    assert len(node.prepare(ref)) == 1, "a call that began later is welcome: another pod has the claim"


def test_a_call_that_the_kubelet_gave_up_does_nothing(node: FakeNode) -> None:
    with pytest.raises(LateCall, match="cancelled this call"):
        node.prepare(node.claim("train", 1), node.call(active=False))

    assert node.journal.entries() == ()


@pytest.mark.parametrize(
    ("device", "pool", "message"),
    [
        ("gpu-0", POOL, "which this node does not offer"),
        ("../../x", POOL, "which this node does not offer"),
        (None, "node-b/gpu.nvidia.com", r"this node's pool is node-a/gpu\.nvidia\.com"),
    ],
)
def test_an_unknown_device_or_pool_is_refused(
    node: FakeNode, device: str | None, pool: str, message: str
) -> None:
    ref = node.claim("odd", 1)
    result = node.api["team", "odd"]["status"]["allocation"]["devices"]["results"][0]
    result.update(pool=pool, **({"device": device} if device else {}))

    with pytest.raises(ClaimRefused, match=message):
        node.prepare(ref)


def test_a_device_that_is_not_there_any_more_is_an_error_that_names_it(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    node.machine.remove(node.gpus[1])

    with pytest.raises(NvmlError, match=str(node.gpus[1])):
        node.prepare(ref)


def test_a_lost_gpu_is_not_waited_for_and_its_neighbours_are_prepared(node: FakeNode) -> None:
    node.patience_seconds = 30.0
    node.restart()
    node.machine.lose(node.gpus[1])

    with pytest.raises(NvmlError, match=r"GPU_IS_LOST .*restart the machine; a reset does not help"):
        node.prepare(node.claim("unlucky", 1))

    assert node.complaints == [], "nobody was told to wait"
    assert len(node.prepare(node.claim("lucky", 0, 2, 3))) == 3


def test_unprepare_of_a_claim_on_a_lost_gpu_succeeds(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    node.prepare(ref)
    node.machine.lose(node.gpus[1])

    node.unprepare(ref)

    assert not node.spec_path(ref).exists()


def test_a_gpu_that_hangs_holds_up_its_own_claims_only(node: FakeNode) -> None:
    node.machine.hang("uuid", node.gpus[1])
    node.guard_seconds = 0.2
    node.restart()
    try:
        with pytest.raises(NvmlError, match=r"did not return within 0\.2 s"):
            node.prepare(node.claim("stuck", 1))
        assert len(node.prepare(node.claim("free", 0))) == 1
    finally:
        node.machine.heal()
    assert len(node.prepare(node.claim("later", 2))) == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kind": "GpuConfig"}, "apiVersion: is required"),
        (
            {
                "apiVersion": "resource.nvidia.com/v1beta1",
                "kind": "GpuConfig",
                "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 0}},
            },
            "0 percent of the threads, so nothing could run",
        ),
    ],
)
def test_a_config_that_cannot_be_met_is_refused(
    node: FakeNode, parameters: dict[str, Any], message: str
) -> None:
    config = {"source": "FromClaim", "opaque": {"driver": DRIVER_NAME, "parameters": parameters}}

    with pytest.raises(ClaimRefused, match=message):
        node.prepare(node.claim("odd", 1, config=[config]))


@pytest.mark.parametrize("kind", [["x"], {}, 7, None])
def test_a_config_for_all_requests_whose_kind_is_no_text_is_refused(node: FakeNode, kind: Any) -> None:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind}
    config = {"source": "FromClaim", "opaque": {"driver": DRIVER_NAME, "parameters": parameters}}

    with pytest.raises(ClaimRefused, match="kind: "):
        node.prepare(node.claim("odd", 1, config=[config]))


def test_a_missing_claim_a_replaced_one_and_an_unallocated_one_are_told_apart(node: FakeNode) -> None:
    with pytest.raises(ClaimRefused, match="team/nobody does not exist"):
        node.prepare(ClaimRef("team", "nobody", "u-1"))
    old = node.claim("twice", 1)
    node.claim("twice", 1)
    with pytest.raises(ClaimRefused, match="it was deleted and created again"):
        node.prepare(old)
    free = node.claim("free", 1)
    node.api["team", "free"]["status"] = {}
    with pytest.raises(ClaimBlocked, match="is not allocated"):
        node.prepare(free)


def test_a_missing_device_node_fails_before_anything_is_written(node: FakeNode) -> None:
    (node.driver_root / "dev/nvidia-uvm").unlink()

    with pytest.raises(NodeIncomplete, match="/dev/nvidia-uvm is missing"):
        node.prepare(node.claim("train", 1))

    assert node.steps == []


def test_a_spec_that_cannot_be_written_leaves_no_claim_behind(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    node.cdi.rmdir()

    with pytest.raises(StorageError, match=r"writing .* failed"):
        node.prepare(ref)

    assert node.journal.entries() == ()
    node.cdi.mkdir()
    node.prepare(ref)


def test_what_nobody_foresaw_leaves_nothing_behind(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "hgx-h100")
    ref = node.claim_devices("train", node.partition(0, "1g.10gb", 6))

    def fail(step: str) -> None:
        if step == "made":
            raise OSError(5, "Input/output error")

    node.on_step = fail
    with pytest.raises(OSError, match="Input/output error"):
        node.prepare(ref)

    assert node.journal.entries() == ()
    assert node.instances() == ()
    node.stop()


def test_a_claim_that_was_given_a_device_twice_is_refused(node: FakeNode) -> None:
    with pytest.raises(ClaimRefused, match=r"was given device gpu-0000-.* twice"):
        node.prepare(node.claim("train", 1, 1))
    assert node.journal.held() == ()


def test_requests_that_look_at_one_device_get_one_cdi_device(node: FakeNode) -> None:
    """CDI refuses a spec that names a device twice, and with it the containers of the claim."""
    ref = node.claim("monitor", 1, 1, admin=True)

    prepared = node.prepare(ref)

    assert [one.cdi_device_ids for one in prepared] == [prepared[0].cdi_device_ids] * 2
    (device,) = json.loads(node.spec_path(ref).read_text())["devices"]
    assert f"k8s.gpu.nvidia.com/claim={device['name']}" == prepared[0].cdi_device_ids[0]


@pytest.mark.parametrize("does", ["prepare", "prepare again", "unprepare"])
def test_a_call_waits_for_locks_no_longer_than_the_kubelet_waits_for_it(node: FakeNode, does: str) -> None:
    ref = node.claim("train", 1)
    if does != "prepare":
        node.prepare(ref)
    call = Call(boottime_ns(), lambda: True, lambda: 2.0)
    work = node.unprepare if does == "unprepare" else node.prepare
    locked = KeyedLocks(node.folder / "locks").holding([claim_key(ref.uid)], 1.0)
    with locked, pytest.raises(ClaimBlocked, match=r"still works on .* after 0 s"):
        work(ref, call)
