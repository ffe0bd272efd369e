"""What may go wrong with shares: a clear error or a complete recovery, and nothing is left on a GPU.

Shares of a partition that is made on request have it whatever becomes of its maker. A record that is lost
takes no GPU from a claim that runs.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kubeletplugin.claims.journal.entry import NEWER_SCHEMA
from tests.gpus import ClaimBlocked, ClaimRefused, DeviceHeld, DriverError, NvmlError, StorageError
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.full_disk import full_after
from tests.kubeletplugin.share_node import GIB, H100_MIB, class_slicing, mps
from tests.plugin import ClaimRef, InstanceInUse, NotReady


def claimed(node: FakeNode, name: str = "a", form: str = "mps-4", gpu: int = 0) -> ClaimRef:
    """A claim for a share of a GPU, or of one of its partitions."""
    if form.startswith("part "):
        return node.claim_shares(name, part(node, form.removeprefix("part ")))
    form, _, wanted = form.partition(" ")
    return node.claim_shares(name, node.shared(form, gpu), config=class_slicing(wanted) if wanted else [])


def part(node: FakeNode, form: str = "mps-2") -> str:
    """The device name of a share of a partition of the first GPU."""
    return f"{node.partition(0, '3g.40gb', 4)}-{form}"


def lose(node: FakeNode, ref: ClaimRef) -> None:
    """Have the file of a claim in the journal damaged, and the plugin start anew."""
    node.entry_file(ref).write_text("{")
    node.restart()


Spoil = Callable[[FakeNode], object]


def _daemon(node: FakeNode, error: DriverError) -> None:
    node.mps.failures.append(error)


def _silent(node: FakeNode) -> None:
    node.mps.silent = True


REFUSED = ClaimRefused("the daemon refused its limits", "ask for others")
FAULTS: dict[str, tuple[str, Spoil, type[DriverError], str]] = {
    "no supervisor": ("mps-4", _silent, NotReady, "no MPS supervisor answers .*retryable"),
    "refused limits": ("mps-4", partial(_daemon, error=REFUSED), ClaimRefused, "refused its limits"),
    "nvidia-smi": (
        "ts-4 Short",
        lambda node: node.time_slices.failures.append(ClaimBlocked("nvidia-smi failed", "see the log")),
        NotReady,
        "nvidia-smi failed",
    ),
    "no partition": (
        "part mps-2",
        lambda node: node.machine.fail("create_compute_instance", times=1),
        NvmlError,
        "nvmlGpuInstanceCreateComputeInstance",
    ),
    "no daemon of a partition": ("part mps-2", partial(_daemon, error=REFUSED), ClaimRefused, "refused"),
}


@pytest.mark.parametrize(("form", "spoil", "error", "words"), FAULTS.values(), ids=FAULTS)
def test_a_prepare_that_fails_leaves_nothing_and_does_not_fail_once_the_fault_is_over(
    node: FakeNode, form: str, spoil: Spoil, error: type[DriverError], words: str
) -> None:
    spoil(node)
    ref = claimed(node, form=form)
    with pytest.raises(error, match=words):
        node.prepare(ref)
    node.assert_holds_nothing(ref)
    if node.mps.silent:
        assert node.recorded() == [node.whole()], "the daemon may be running"
        node.mps.silent = False
        node.sharing_reconciler.run_once()
    node.assert_as_before()
    assert (node.starts(), node.mig_enabled()) == ([], False)
    assert node.prepare(ref)


def test_in_a_vgpu_guest_mps_is_refused_for_good_and_the_gpu_stays_free(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "a100-vgpu-guest")
    ref = claimed(node)
    with pytest.raises(ClaimRefused, match="cannot be set to compute mode exclusive-process"):
        node.prepare(ref)
    node.assert_holds_nothing(ref)
    node.assert_as_before()
    node.prepared("whole", 0)
    node.stop()


def test_a_gpu_that_cannot_slice_time_is_noted_and_prepared(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "a100-vgpu-guest")
    plain = claimed(node, "a", "ts-4")
    node.prepare(plain)
    assert node.notes == [], "nobody asked for anything"
    node.unprepare(plain)
    ref = node.claim_shares("b", node.shared("ts-4"), config=class_slicing("Short"))
    assert len(node.prepare(ref)) == 1
    [note] = node.notes
    assert note.startswith(f"{ref}: time-slice Short has no effect on GPU {node.gpus[0]}: it is a vGPU")
    node.unprepare(ref)
    node.assert_as_before()
    node.stop()


def test_what_a_share_set_is_known_until_its_lost_gpu_was_seen_again(node: FakeNode) -> None:
    refs = [claimed(node, "a"), claimed(node, "b", "ts-4", 1)]
    for ref in refs:
        node.prepare(ref)
    for gpu in (0, 1):
        node.machine.lose(node.gpus[gpu])
    for ref in refs:
        node.unprepare(ref)
        assert not node.entry(ref).holds
    assert node.mps.running == {}
    for gpu in (0, 1):
        node.machine.restore(node.gpus[gpu])
    node.sharing_reconciler.run_once()
    node.assert_as_before()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_gpu_does_not_keep_the_others_of_its_group(node: FakeNode, lost: int) -> None:
    ref = node.prepared("own", 0, 1, config=mps())
    node.machine.lose(node.gpus[lost])
    node.unprepare(ref)
    assert (node.compute_mode(1 - lost), node.mps.running) == ("default", {})
    assert node.prepare(node.claim("next", 1 - lost))
    node.machine.restore(node.gpus[lost])
    node.sharing_reconciler.run_once()
    assert (node.compute_mode(lost), node.recorded()) == ("default", [])


def test_shares_are_let_go_while_there_is_no_driver(node: FakeNode) -> None:
    ref = claimed(node)
    node.prepare(ref)
    node.machine.driver_gone()
    node.unprepare(ref)
    assert (node.mps.running, node.recorded()) == ({}, [])


def test_leftovers_are_cleared_before_the_gpu_is_handed_out_again(node: FakeNode) -> None:
    ref = claimed(node)
    node.prepare(ref)
    node.mps.silent = True
    node.unprepare(ref)
    for other in (node.claim("whole", 0), node.claim_devices("part", node.part())):
        with pytest.raises(NotReady, match="no MPS supervisor"):
            node.prepare(other)
        node.assert_holds_nothing(other)
        assert not node.mig_enabled()
    node.mps.silent = False
    node.prepared("whole", 0)
    node.assert_as_before()


def test_gpus_that_were_shared_together_just_now_are_waited_for(node: FakeNode) -> None:
    """They became leftovers after the claim's locks were chosen: the next try takes all of them."""
    ref = node.prepared("own", 0, 1, config=mps())
    before = node.recorded()
    moved = node.boot_files / "sharing" / f"{before[0]}.json"
    aside = moved.rename(moved.with_name("aside"))
    node.read_anew()
    node.mps.silent = True
    node.unprepare(ref)

    def appear() -> None:
        aside.rename(moved)
        node.read_anew()

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
    node.assert_as_before()


@pytest.mark.parametrize("form", ["mps-4", "part mps-2"])
def test_the_disk_may_be_full_from_any_write_on(node: FakeNode, form: str) -> None:
    refusals = 0
    for files in range(30):
        ref = claimed(node, f"c-{files}", form)
        with full_after(files, node.folder) as disk:
            if disk_takes(node, ref):
                break
            assert disk.refused
            refusals += 1
            if not form.startswith("part"):
                node.assert_holds_nothing(ref)
                node.assert_as_before()
        node.reconciler.finish_releases()
        node.sharing_reconciler.run_once()
        left = node.journal.get(ref.uid)
        if left is None or left.state != "prepared":  # else only its spec is missing, and it keeps its share
            node.assert_as_before()
        assert node.prepare(ref)
        with full_after(0, node.folder):
            if form.startswith("part"):  # what is destroyed is written down first
                with pytest.raises(StorageError):
                    node.unprepare(ref)
            else:
                node.unprepare(ref)
        node.unprepare(ref)
        node.assert_as_before()
        assert node.starts() == []
    assert refusals >= 5, "every file that a prepare writes is one"


def disk_takes(node: FakeNode, ref: ClaimRef) -> bool:
    try:
        return bool(node.prepare(ref))
    except StorageError:
        return False


def test_memory_that_was_never_published_is_waited_for(node: FakeNode) -> None:
    """Else a claim for all of a GPU would be one of its shares."""
    device = node.shared("mps-frac-mem")
    ref = node.claim_shares("all", device, consumed={"memory": "79Gi"})
    with pytest.raises(NotReady, match="it is not known whether the claim has all"):
        node.prepare(ref)
    node.assert_holds_nothing(ref)
    node.published_memory[device] = 79 * GIB
    node.prepare(ref)
    node.assert_as_before()


def test_a_partition_that_a_lost_claim_shares_stays_and_nobody_else_gets_a_share(node: FakeNode) -> None:
    refs = [claimed(node, name, "part ts-2") for name in "ab"]
    for ref in refs:
        node.prepare(ref)
    made = node.instances()
    lose(node, refs[0])
    with pytest.raises(DeviceHeld):
        node.prepare(claimed(node, "c", "part ts-2"))
    for ref in reversed(refs):
        node.unprepare(ref)
        assert node.instances() == made


def test_a_partition_that_is_being_destroyed_is_waited_for_and_made_anew(node: FakeNode) -> None:
    refs = [claimed(node, name, "part mps-2") for name in "ab"]
    node.prepare(refs[0])
    node.machine.set_processes(node.partition_uuid(refs[0]), (4242,))
    assert isinstance(node.unprepare(refs[0]), InstanceInUse)
    assert node.mps.running == {}, "the daemon would be in the way itself"
    with pytest.raises(ClaimBlocked):
        node.prepare(refs[1])
    node.assert_holds_nothing(refs[1])
    node.machine.set_processes(node.partition_uuid(refs[0]), ())
    assert node.reconciler.finish_releases() == (refs[0].uid,)
    node.prepare(refs[1])
    assert node.starts() == [4]


def test_a_share_whose_partition_has_a_share_of_a_newer_version_waits_for_that_one(node: FakeNode) -> None:
    ours, theirs = (claimed(node, name, "part mps-2") for name in ("ours", "theirs"))
    node.prepare(theirs)
    entry = node.entry(theirs)
    (held,) = entry.devices
    newer = replace(held, kind=f"{NEWER_SCHEMA}2", record={}, share=None)
    node.journal.put(replace(entry, devices=(newer,)))

    with pytest.raises(DeviceHeld, match="can only be used by one claim at a time"):
        node.prepare(ours)

    assert node.starts() == [4]


def test_a_lost_claim_keeps_its_gpu_as_it_is_and_is_prepared_again_as_it_was(node: FakeNode) -> None:
    ref, other = claimed(node, "a"), claimed(node, "b")
    before = node.prepare(ref)
    lose(node, ref)
    assert node.entry(ref).state == "lost"
    node.sharing_reconciler.run_once()
    for thief in (other, node.claim("whole", 0)):
        with pytest.raises(DeviceHeld):
            node.prepare(thief)
    node.mps.failures = [ClaimRefused("no", "")]
    with pytest.raises(ClaimRefused):
        node.prepare(ref)
    assert (node.daemon_limits(), node.compute_mode()) == (
        (25, (H100_MIB // 4,)),
        "exclusive-process",
    ), "its pod may run"
    assert node.prepare(ref) == before
    assert (node.mps.started, node.share_record(ref).shares) == (1, 1)
    lose(node, ref)
    node.unprepare(ref)
    node.sharing_reconciler.run_once()
    node.assert_as_before()
