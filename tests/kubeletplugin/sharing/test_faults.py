"""What may go wrong with shares: a clear error or a complete recovery, and nothing is left on a GPU."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from driver.errors import ClaimBlocked, ClaimRefused, NvmlError, StorageError
from driver.nvml.api import Code
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from kubeletplugin.sharing.gpus import NotReady
from tests.kubeletplugin.cut_node import mig_enabled, starts
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.full_disk import full_after
from tests.kubeletplugin.share_node import (
    GIB,
    H100_MIB,
    assert_as_before,
    assert_holds_nothing,
    class_slicing,
    entry_of,
    interval,
    limits,
    mode,
    mps,
    read_anew,
    recorded,
    shared,
    whole,
)


def claimed(node: FakeNode, name: str = "a", form: str = "mps-4", gpu: int = 0) -> ClaimRef:
    return node.claim_shares(name, shared(node, form, gpu))


def test_a_silent_supervisor_is_waited_for_with_one_complaint(node: FakeNode) -> None:
    node.patience_seconds = 20.0
    node.restart()
    node.mps.failures = [ClaimBlocked("no MPS supervisor answers", "start it")]
    ref = claimed(node)
    assert len(node.prepare(ref)) == 1
    assert [
        text for text in node.complaints if "no MPS supervisor answers: start it" in text
    ] == node.complaints
    assert len(node.complaints) == 1
    assert limits(node) == (25, (H100_MIB // 4,))


def test_a_supervisor_that_stays_silent_leaves_nothing_but_what_has_to_be_put_back(node: FakeNode) -> None:
    node.mps.silent = True
    ref = claimed(node)
    with pytest.raises(NotReady, match=r"no MPS supervisor answers .*retryable"):
        node.prepare(ref)
    assert_holds_nothing(node, ref)
    assert recorded(node) == [whole(node)], "the daemon may be running"
    node.mps.silent = False
    node.sharing_reconciler.run_once()
    assert_as_before(node)


def test_limits_that_the_supervisor_refuses_are_refused_for_good(node: FakeNode) -> None:
    node.mps.failures = [ClaimRefused("the daemon refused its limits", "ask for others")]
    ref = claimed(node)
    with pytest.raises(ClaimRefused, match="refused its limits"):
        node.prepare(ref)
    assert_holds_nothing(node, ref)
    assert_as_before(node)
    assert node.complaints == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("code", [Code.UNKNOWN, Code.NO_PERMISSION])
def test_a_compute_mode_that_cannot_be_set_leaves_nothing(node: FakeNode, code: int, *, after: bool) -> None:
    (node.machine.fail_after if after else node.machine.fail)("set_compute_mode", code=code, times=1)
    ref = claimed(node)
    with pytest.raises(NvmlError):
        node.prepare(ref)
    assert_holds_nothing(node, ref)
    assert_as_before(node)
    assert node.prepare(ref)


def test_a_compute_mode_that_cannot_be_put_back_is_put_back_later(node: FakeNode) -> None:
    ref = claimed(node)
    node.prepare(ref)
    node.machine.fail("set_compute_mode")
    node.unprepare(ref)
    assert (mode(node), recorded(node)) == ("exclusive-process", [whole(node)])
    with pytest.raises(NvmlError):
        node.prepare(node.claim("whole", 0))
    node.machine.heal()
    node.prepare(node.claim("whole", 0))
    assert_as_before(node)


def test_in_a_vgpu_guest_mps_is_refused_for_good_and_the_gpu_stays_free(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "a100-vgpu-guest")
    ref = claimed(node)
    with pytest.raises(ClaimRefused, match="cannot be set to compute mode exclusive-process"):
        node.prepare(ref)
    assert_holds_nothing(node, ref)
    assert_as_before(node)
    node.prepare(node.claim("whole", 0))
    node.stop()


def test_a_gpu_that_cannot_slice_time_is_noted_and_prepared(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "a100-vgpu-guest")
    plain = claimed(node, "a", "ts-4")
    node.prepare(plain)
    assert node.notes == [], "nobody asked for anything"
    node.unprepare(plain)
    ref = node.claim_shares("b", shared(node, "ts-4"), config=class_slicing("Short"))
    assert len(node.prepare(ref)) == 1
    [note] = node.notes
    assert note.startswith(f"{ref}: time-slice Short has no effect on GPU {node.gpus[0]}: it is a vGPU")
    node.unprepare(ref)
    assert_as_before(node)
    node.stop()


def test_an_nvidia_smi_that_fails_is_waited_for(node: FakeNode) -> None:
    ref = node.claim_shares("a", shared(node, "ts-4"), config=class_slicing("Short"))
    node.time_slices.failures = [ClaimBlocked("nvidia-smi failed", "see the log")]
    with pytest.raises(NotReady, match="nvidia-smi failed"):
        node.prepare(ref)
    assert_holds_nothing(node, ref)
    assert_as_before(node)
    assert node.prepare(ref)
    assert interval(node) == "Short"


def test_a_time_slice_that_cannot_be_lowered_is_not_forgotten(node: FakeNode) -> None:
    """Who asked for it leaves while another stays; the last one to leave puts it back all the same."""
    asks = node.claim_shares("a", shared(node, "ts-4"), config=class_slicing("Long"))
    stays = claimed(node, "b", "ts-4")
    for ref in (asks, stays):
        node.prepare(ref)
    node.time_slices.failures = [ClaimBlocked("nvidia-smi failed", "see the log")]
    node.unprepare(asks)
    assert interval(node) == "Long"
    node.unprepare(stays)
    assert_as_before(node)


def test_what_a_share_set_is_known_until_its_lost_gpu_was_seen_again(node: FakeNode) -> None:
    refs = [claimed(node, "a"), claimed(node, "b", "ts-4", 1)]
    for ref in refs:
        node.prepare(ref)
    for gpu in (0, 1):
        node.machine.lose(node.gpus[gpu])
    for ref in refs:
        node.unprepare(ref)
        assert not entry_of(node, ref).holds
    assert node.mps.running == {}
    for gpu in (0, 1):
        node.machine.restore(node.gpus[gpu])
    node.sharing_reconciler.run_once()
    assert_as_before(node)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_gpu_does_not_keep_the_others_of_its_group(node: FakeNode, lost: int) -> None:
    ref = node.claim("own", 0, 1, config=mps())
    node.prepare(ref)
    node.machine.lose(node.gpus[lost])
    node.unprepare(ref)
    assert (mode(node, 1 - lost), node.mps.running) == ("default", {})
    assert node.prepare(node.claim("next", 1 - lost))
    node.machine.restore(node.gpus[lost])
    node.sharing_reconciler.run_once()
    assert (mode(node, lost), recorded(node)) == ("default", [])


def test_shares_are_let_go_while_there_is_no_driver(node: FakeNode) -> None:
    ref = claimed(node)
    node.prepare(ref)
    node.machine.driver_gone()
    node.unprepare(ref)
    assert (node.mps.running, recorded(node)) == ({}, [])


def test_unprepare_does_not_wait_for_the_supervisor_and_the_keeper_finishes_it(node: FakeNode) -> None:
    ref = claimed(node)
    node.prepare(ref)
    node.mps.silent = True
    node.unprepare(ref)
    assert not entry_of(node, ref).holds
    assert (whole(node) in node.mps.running, mode(node)) == (True, "exclusive-process")
    node.sharing_reconciler.run_once()
    assert recorded(node) == [whole(node)], "still silent"
    node.mps.silent = False
    node.sharing_reconciler.run_once()
    assert_as_before(node)


def test_leftovers_are_cleared_before_the_gpu_is_handed_out_again(node: FakeNode) -> None:
    ref = claimed(node)
    node.prepare(ref)
    node.mps.silent = True
    node.unprepare(ref)
    for other in (
        node.claim("whole", 0),
        node.claim_devices("part", node.partition(0, "1g.10gb", 6)),
        claimed(node, "ts", "ts-4"),
    ):
        node.mps.silent = True
        with pytest.raises(NotReady, match="no MPS supervisor"):
            node.prepare(other)
        assert_holds_nothing(node, other)
        assert not mig_enabled(node)
    node.mps.silent = False
    whole_ref = node.claim("whole", 0)
    node.prepare(whole_ref)
    assert_as_before(node)


def test_a_leftover_of_two_gpus_is_cleared_by_a_claim_for_one(node: FakeNode) -> None:
    ref = node.claim("own", 0, 1, config=mps())
    node.prepare(ref)
    node.mps.silent = True
    node.unprepare(ref)
    node.mps.silent = False
    node.prepare(node.claim("next", 1))
    assert_as_before(node)


def test_gpus_that_were_shared_together_just_now_are_waited_for(node: FakeNode) -> None:
    """They became leftovers after the claim's locks were chosen: the next try takes all of them."""
    ref = node.claim("own", 0, 1, config=mps())
    node.prepare(ref)
    before = recorded(node)
    moved = node.boot_files / "sharing" / f"{before[0]}.json"
    aside = moved.rename(moved.with_name("aside"))
    read_anew(node)
    node.mps.silent = True
    node.unprepare(ref)

    def appear() -> None:
        aside.rename(moved)
        read_anew(node)

    leftovers = node.preparer._leftovers  # noqa: SLF001 - what happens between two of its calls
    places_beside = leftovers.places_beside

    def chosen_too_early(places: Collection[str]) -> set[str]:
        found = places_beside(places)
        if aside.exists():
            appear()
        return found

    leftovers.places_beside = chosen_too_early  # type: ignore[method-assign] # as above
    other = node.claim("next", 1)
    with pytest.raises(NotReady, match="have just been shared together"):
        node.prepare(other)
    node.mps.silent = False
    node.prepare(other)
    assert_as_before(node)


@pytest.mark.parametrize(("form", "fewest"), [("mps-4", 5), ("ts-4", 5), ("part", 5)])
def test_the_disk_may_be_full_from_any_write_on(node: FakeNode, form: str, fewest: int) -> None:
    refusals = 0
    for files in range(30):
        device = f"{node.partition(0, '1g.10gb', 6)}-mps-2" if form == "part" else shared(node, form)
        ref = node.claim_shares(f"c-{files}", device, config=class_slicing("Long") if form == "ts-4" else [])
        with full_after(files, node.folder) as disk:
            if disk_takes(node, ref):
                break
            assert disk.refused
            refusals += 1
            if form != "part":
                assert_holds_nothing(node, ref)
                assert_as_before(node)
        node.reconciler.finish_releases()
        node.sharing_reconciler.run_once()
        left = node.journal.get(ref.uid)
        if left is None or left.state != "prepared":  # else only its spec is missing, and it keeps its share
            assert_as_before(node)
        assert node.prepare(ref)
        with full_after(0, node.folder):
            if form == "part":  # what is destroyed is written down first
                with pytest.raises(StorageError):
                    node.unprepare(ref)
            else:
                node.unprepare(ref)
        node.unprepare(ref)
        assert_as_before(node)
        assert starts(node) == []
    assert refusals >= fewest, "every file that a prepare writes is one"


def disk_takes(node: FakeNode, ref: ClaimRef) -> bool:
    try:
        return bool(node.prepare(ref))
    except StorageError:
        return False


def test_memory_that_was_never_published_is_waited_for(node: FakeNode) -> None:
    """Else a claim for all of a GPU would be one of its shares."""
    device = shared(node, "mps-frac-mem")
    ref = node.claim_shares("all", device, consumed={"memory": "79Gi"})
    with pytest.raises(NotReady, match="it is not known whether the claim has all"):
        node.prepare(ref)
    assert_holds_nothing(node, ref)
    node.published_memory[device] = 79 * GIB
    node.prepare(ref)
    assert_as_before(node)
