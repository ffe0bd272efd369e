"""What the kubelet gets for a claim: the right devices, the same again, or a reason in words."""

import json
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import Forbidden
from tests.gpus import ApiError, DeviceHeld, DriverError, gpu_device_name
from tests.kubeletplugin.fake_node import POOL, FakeNode
from tests.kubeletplugin.fake_roots import bind_again, reinstall_driver
from tests.plugin import ClaimRef, LateCall, PreparedDevice

MACHINE = "a30-quad"


def spec_of(node: FakeNode, ref: ClaimRef) -> Any:
    return json.loads(node.spec_path(ref).read_text())


def test_a_claim_gets_its_devices_in_order_with_a_spec_for_each(node: FakeNode) -> None:
    ref = node.claim("train", 2, 0)

    prepared = node.prepare(ref)

    names = [gpu_device_name(node.gpus[2]), gpu_device_name(node.gpus[0])]
    assert prepared == tuple(
        PreparedDevice((f"gpu-{i}",), POOL, name, (f"k8s.gpu.nvidia.com/claim={ref.uid}-{name}",))
        for i, name in enumerate(names)
    )
    devices = spec_of(node, ref)["devices"]
    assert [device["name"] for device in devices] == [f"{ref.uid}-{name}" for name in names]
    paths = [[n["path"] for n in device["containerEdits"]["deviceNodes"]] for device in devices]
    assert paths[0][0] == "/dev/nvidia2"
    assert paths[1][0] == "/dev/nvidia0"
    assert any(path.startswith("/dev/dri/card") for path in paths[0]), "the GPU's own DRM nodes belong to it"
    assert not set(paths[0]) & set(paths[1])


@pytest.mark.parametrize("hours", [1, -1])
def test_a_claim_outlives_a_time_of_day_that_is_set_while_it_is_prepared(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    ref, time_of_day, time_of_day_ns = node.claim("train", 1), time.time, time.time_ns

    def set_it(_step: str) -> None:
        monkeypatch.setattr(time, "time", lambda: time_of_day() + hours * 3600)
        monkeypatch.setattr(time, "time_ns", lambda: time_of_day_ns() + hours * 3600 * 10**9)

    node.on_step = set_it
    first = node.prepare(ref)
    node.restart()
    assert node.prepare(ref) == first
    assert node.unprepare(ref) is None
    node.restart()
    assert node.prepare(node.claim("next", 1))


def test_a_lost_or_damaged_spec_is_written_again(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    node.prepare(ref)
    good = node.spec_path(ref).read_bytes()

    for damage in (lambda: node.spec_path(ref).unlink(), lambda: node.spec_path(ref).write_text("{")):
        damage()
        node.prepare(ref)
        assert node.spec_path(ref).read_bytes() == good


def test_a_spec_follows_the_minor_of_its_gpu_and_the_driver_version(node: FakeNode) -> None:
    ref = node.claim("train", 0)
    node.prepare(ref)
    assert libcuda_of(node, ref) == {"libcuda.so", "libcuda.so.1", "libcuda.so.570.133.20"}
    node.machine.set_minors({0: 1, 1: 0})
    node.machine.driver_gone()
    node.machine.driver_back("575.51.03")
    bind_again(node.sysfs, node.gpus[0])
    reinstall_driver(node.driver_root, node.machine)

    node.prepare(ref)

    assert spec_of(node, ref)["devices"][0]["containerEdits"]["deviceNodes"][0]["path"] == "/dev/nvidia1"
    assert libcuda_of(node, ref) == {"libcuda.so", "libcuda.so.1", "libcuda.so.575.51.03"}


def libcuda_of(node: FakeNode, ref: ClaimRef) -> set[str]:
    """The file names of libcuda that the containers of a claim get."""
    paths = [Path(mount["containerPath"]) for mount in spec_of(node, ref)["containerEdits"]["mounts"]]
    return {path.name for path in paths if path.name.startswith("libcuda.so")}


def test_unprepare_needs_neither_api_nor_nvml(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    node.prepare(ref)
    node.machine.driver_gone()
    node.api_failures = [ApiError("away")] * 9

    node.unprepare(ref)

    assert not node.spec_path(ref).exists()
    assert len(node.api_failures) == 9


def test_a_device_that_another_claim_holds_is_refused_and_the_log_alone_names_that_claim(
    node: FakeNode,
) -> None:
    node.prepare(node.claim("first", 1))
    second = node.claim("second", 0, 1)

    with pytest.raises(DeviceHeld, match=r"gpu-.* is still held by another claim: .*\(retryable\)") as caught:
        node.prepare(second)
    assert "team/first (UID " in caught.value.logged
    assert "first" not in str(caught.value)

    assert not node.spec_path(second).exists()
    node.prepare(node.claim("third", 0))


def test_who_waits_for_a_device_gets_it_when_the_holder_ends(node: FakeNode) -> None:
    first, second = node.claim("first", 1), node.claim("second", 1)
    node.prepare(first)
    node.patience_seconds = 30.0
    node.restart()
    complaints: queue.SimpleQueue[str] = queue.SimpleQueue()
    node.on_complaint = complaints.put
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(node.prepare, second)
        complaint = complaints.get(timeout=20)

        node.unprepare(first)

        assert len(got.result(20)) == 1
    assert "team/second" in complaint
    assert "first" not in complaint


def unprepare_as_the_kubelet(node: FakeNode, ref: ClaimRef) -> None:
    """Unprepare, again where a prepare was under way that began before."""
    while True:
        try:
            node.unprepare(ref)
        except LateCall:
            continue
        return


def test_only_so_many_calls_wait_that_unprepare_is_never_crowded_out(node: FakeNode) -> None:
    first = node.claim("first", 1)
    node.prepare(first)
    node.patience_seconds = 30.0
    node.restart()
    refused: queue.SimpleQueue[ClaimRef] = queue.SimpleQueue()
    got: queue.SimpleQueue[tuple[PreparedDevice, ...]] = queue.SimpleQueue()

    def wait(ref: ClaimRef) -> None:
        try:
            got.put(node.prepare(ref))
        except DeviceHeld:
            refused.put(ref)
        except LateCall:
            return  # it was unprepared while it waited

    waiting = [node.claim(f"waiting-{turn}", 1) for turn in range(14)]
    threads = [threading.Thread(target=wait, args=(ref,)) for ref in waiting]
    for thread in threads:
        thread.start()
    for _ in range(2):  # fourteen calls came and twelve may wait, the others are refused at once
        assert refused.get(timeout=20) in waiting

    node.unprepare(first)
    assert got.get(timeout=20)
    for ref in waiting:
        unprepare_as_the_kubelet(node, ref)
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert refused.empty()


def test_admin_access_stands_beside_any_claim_and_leaves_it_alone(node: FakeNode) -> None:
    holder, monitor = node.claim("holder", 1), node.claim("monitor", 0, 1, 2, 3, admin=True)
    node.prepare(holder)

    assert len(node.prepare(monitor)) == 4
    node.unprepare(monitor)
    assert node.spec_path(holder).exists()
    node.prepare(node.claim("late", 0))


def test_results_of_another_driver_are_left_to_it(node: FakeNode) -> None:
    ref = node.claim("mixed", 1)
    results = node.api["team", "mixed"]["status"]["allocation"]["devices"]["results"]
    results.insert(0, {"request": "nic", "driver": "dra.net", "pool": "p", "device": "eth1"})

    assert [device.device for device in node.prepare(ref)] == [gpu_device_name(node.gpus[1])]


def test_a_claim_with_nothing_of_ours_is_answered_empty(node: FakeNode) -> None:
    ref = node.claim("nothing")

    assert node.prepare(ref) == ()
    assert list(node.cdi.iterdir()) == []
    node.unprepare(ref)


def test_subrequests_are_answered_by_their_request(node: FakeNode) -> None:
    ref = node.claim("either", 1)
    node.api["team", "either"]["status"]["allocation"]["devices"]["results"][0]["request"] = "gpu/large"

    assert node.prepare(ref)[0].request_names == ("gpu",)


def test_the_api_may_be_away_for_a_while_and_know_no_roles_at_first(node: FakeNode) -> None:
    node.patience_seconds = 30.0
    node.restart()
    node.api_failures = [
        ApiError("connection refused", "start the API server"),
        Forbidden("cannot get resourceclaims", "grant this right"),
    ]

    assert len(node.prepare(node.claim("train", 1))) == 1
    assert node.complaints == ["team/train: connection refused: start the API server (retryable)"]


def test_claims_for_the_same_two_gpus_come_and_go_at_once_and_none_waits_for_another(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "hgx-h100")
    refused: list[DriverError] = []

    def come_and_go(name: str, *gpus: int) -> None:
        for turn in range(50):
            ref = node.claim(f"{name}-{turn}", *gpus)
            for work in (node.prepare, node.unprepare):
                try:
                    work(ref)
                except DeviceHeld:
                    continue
                except DriverError as error:
                    refused.append(error)

    threads = [threading.Thread(target=come_and_go, args=each) for each in (("up", 0, 1), ("down", 1, 0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    node.stop()

    assert refused == []


def test_eight_claims_at_once_are_prepared_and_never_on_one_device(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "hgx-h100")
    claims = [node.claim(f"c{gpu}-{turn}", gpu) for gpu in range(8) for turn in range(2)]
    won: list[str] = []

    def run(ref: ClaimRef) -> None:
        try:
            won.append(node.prepare(ref)[0].device)
        except DeviceHeld:
            return

    threads = [threading.Thread(target=run, args=(ref,)) for ref in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    node.stop()

    assert sorted(won) == sorted(gpu_device_name(pci) for pci in node.gpus)
