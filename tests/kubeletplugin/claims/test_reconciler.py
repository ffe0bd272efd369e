"""What nobody will unprepare is let go, and what is in doubt is kept."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.gpus import ApiError, DeviceHeld
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import reinstall_driver

MACHINE = "a30-quad"


def _elsewhere(node: FakeNode) -> None:
    (result,) = node.api["team", "train"]["status"]["allocation"]["devices"]["results"]
    result["pool"] = "node-b/gpu.nvidia.com"


@pytest.mark.parametrize(
    "happens",
    [
        lambda node: node.claim("train", 1),
        lambda node: node.api["team", "train"].update(status={}),
        _elsewhere,
    ],
    ids=[
        "deleted, and another one has its name",
        "it lost its allocation",
        "it is allocated on another node",
    ],
)
def test_a_claim_that_the_node_has_no_more_is_let_go(
    node: FakeNode, happens: Callable[[FakeNode], object]
) -> None:
    ref = node.prepared("train", 1)
    happens(node)

    assert node.reconciler.run_once() == (ref.uid,)
    node.prepared("next", 1)


def test_a_claim_that_was_allocated_another_device_is_let_go_unless_a_container_has_the_old_one(
    node: FakeNode,
) -> None:
    ref = node.claim("train", 1)
    (device,) = node.prepare(ref)
    node.use(device)
    node.claim("train", 2, uid=ref.uid)

    assert node.reconciler.run_once() == ()
    node.in_use.clear()
    assert node.reconciler.run_once() == (ref.uid,)


def test_a_claim_whose_status_makes_no_sense_is_kept(node: FakeNode) -> None:
    ref = node.prepared("train", 1)
    node.api["team", "train"]["status"] = {"allocation": {"devices": {"results": [{"driver": 5}, 7]}}}

    assert node.reconciler.run_once() == ()
    assert node.spec_path(ref).exists()


def test_a_claim_is_kept_while_the_api_does_not_answer_and_the_others_go_on(node: FakeNode) -> None:
    refs = [node.claim("a", 0), node.claim("b", 1)]
    for ref in refs:
        node.prepare(ref)
    node.api.clear()
    node.api_failures = [ApiError("away")]

    first = node.reconciler.run_once()

    assert len(first) == 1
    assert set(node.reconciler.run_once()) == {ref.uid for ref in refs} - set(first)


def test_a_claim_whose_journal_file_was_damaged_keeps_its_device_and_is_healed(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    first = node.prepare(ref)
    node.entry_file(ref).write_bytes(b"\0\0")

    recovered = node.restart()

    assert recovered.lost == (ref.uid,)
    assert [aside.uid for aside in node.journal.take_set_aside()] == [ref.uid]
    with pytest.raises(DeviceHeld, match="still held by another claim") as caught:
        node.prepared("thief", 1)
    assert f"held by claim UID {ref.uid}" in caught.value.logged
    assert node.prepare(ref) == first
    assert node.journal.get(ref.uid) is not None
    node.restart()
    assert node.reconciler.run_once() == ()


def test_a_journal_file_that_can_neither_be_read_nor_put_aside_frees_no_device(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    first = node.prepare(ref)
    node.entry_file(ref).write_bytes(b"\0\0")
    (node.boot_files / "journal" / "unreadable").touch()

    assert node.restart().lost == (ref.uid,)
    with pytest.raises(DeviceHeld):
        node.prepared("thief", 1)
    assert node.prepare(ref) == first


def test_a_lost_claim_that_no_container_has_goes_at_the_second_look(node: FakeNode) -> None:
    ref = node.prepared("train", 1)
    node.entry_file(ref).unlink()
    assert node.restart().lost == (ref.uid,)

    assert node.reconciler.run_once() == ()
    assert node.reconciler.run_once() == (ref.uid,)


def test_specs_that_no_claim_of_ours_can_own_are_removed_at_the_start(node: FakeNode) -> None:
    (node.cdi / "k8s.gpu.nvidia.com-claim_u-1.json").write_text('{"devices": [{"name": "u-1-gpu-9"}]}')
    (node.cdi / "k8s.gpu.nvidia.com-claim_u-2.json").write_text("cut")
    (node.cdi / "other.json").write_text("{}")

    assert node.restart().removed == ("u-1", "u-2")
    assert [path.name for path in node.cdi.iterdir()] == ["other.json"]


def test_a_spec_that_the_disk_does_not_let_go_keeps_nothing_from_starting(node: FakeNode) -> None:
    ref = node.claim("train", 1)
    first = node.prepare(ref)
    stuck = node.cdi / "k8s.gpu.nvidia.com-claim_u-1.json"
    stuck.mkdir()
    (stuck / "child").touch()

    recovered = node.restart()

    assert [uid for uid, _ in recovered.failed] == ["u-1"]
    assert "u-1.json failed" in recovered.failed[0][1]
    assert node.prepare(ref) == first


def test_a_spec_that_came_back_beside_a_tombstone_is_removed_at_the_start(node: FakeNode) -> None:
    """Whoever put it back: no claim has it any more."""
    ref = node.prepared("train", 1)
    spec = node.spec_path(ref).read_bytes()
    node.unprepare(ref)
    node.spec_path(ref).write_bytes(spec)

    assert node.restart().removed == (ref.uid,)
    node.prepared("next", 1)


def test_a_spec_that_was_lost_or_damaged_comes_back_without_the_kubelet(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "hgx-h100")
    ref = node.prepared_shares("train", f"{node.partition(1, '3g.40gb', 4)}-mps-2")
    good = node.spec_path(ref).read_bytes()
    node.api.clear()

    for damage in (lambda: node.spec_path(ref).unlink(), lambda: node.spec_path(ref).write_text("{")):
        damage()
        node.restart()
        node.reconciler.restore_specs()
        assert node.spec_path(ref).read_bytes() == good
    node.steps.clear()
    node.reconciler.restore_specs()
    assert node.steps == [], "what is there is not written again"
    node.stop()


def test_a_spec_that_a_prepare_is_about_to_write_is_not_taken_for_lost(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, read = Event(), node.store.read

    def reading(uid: str) -> bytes | None:
        data = read(uid)
        looked.set()
        return data

    monkeypatch.setattr(node.store, "read", reading)
    passing = Thread(target=node.reconciler.restore_specs)

    def pass_between(step: str) -> None:
        if step == "committed":
            passing.start()
            assert looked.wait(10)

    node.on_step = pass_between
    node.prepared("train", 1)
    passing.join()

    assert node.steps.count("metadata written") == 1, "a second write is seen by whoever lists the folder"


def test_no_spec_comes_back_of_a_claim_that_ended_or_whose_partition_is_gone(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "hgx-h100")
    ended, cut = node.claim("ended", 1), node.claim_devices("cut", node.part())
    node.prepare(ended)
    node.prepare(cut)
    node.unprepare(ended)
    node.spec_path(cut).unlink()
    node.machine.reboot()

    node.reconciler.restore_specs()

    assert not node.spec_path(ended).exists()
    assert not node.spec_path(cut).exists()
    node.stop()


@pytest.mark.parametrize("restarts", [True, False], ids=["the plugin was away", "no pass came between"])
def test_a_driver_that_was_replaced_while_nobody_looked_is_seen(node: FakeNode, *, restarts: bool) -> None:
    """A container that starts again would mount what is not there any more."""
    ref, node.driver_generation = node.claim("train", 0), "one load"
    node.prepare(ref)
    before, version = node.spec_path(ref).read_text(), node.machine.state.driver_version
    (node.driver_root / "usr").rename(node.driver_root / "away")
    node.reconciler.restore_specs()
    assert node.spec_path(ref).read_text() == before, "while there is none, what stands stays"

    (node.driver_root / "away").rename(node.driver_root / "usr")
    node.machine.driver_back("575.51.03")
    node.driver_generation = "another load"
    reinstall_driver(node.driver_root, node.machine)
    if restarts:
        node.restart()
    node.reconciler.restore_specs()

    assert node.spec_path(ref).read_text() == before.replace(version, "575.51.03") != before
    node.steps.clear()
    node.reconciler.restore_specs()
    assert node.steps == [], "nothing is left to do"
