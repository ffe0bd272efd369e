"""What may go wrong with shares: a clear error or a complete recovery, and nothing is left on a GPU.

Shares of a partition that is made on request have it whatever becomes of its maker. A record that is lost
takes no GPU from a claim that runs.
"""

from collections.abc import Collection
from dataclasses import replace

import pytest

from kubeletplugin.claims.journal.entry import NEWER_SCHEMA
from tests.gpus import DeviceHeld, StorageError
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.full_disk import full_after
from tests.kubeletplugin.share_node import mps
from tests.plugin import ClaimRef, NotReady


def claimed(node: FakeNode, name: str, form: str) -> ClaimRef:
    """A claim for a share of a GPU, or of one of its partitions."""
    part = f"{node.partition(0, '3g.40gb', 4)}-mps-2"
    return node.claim_shares(name, part if form == "part" else node.shared(form))


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


@pytest.mark.parametrize("form", ["mps-4", "part"])
def test_the_disk_may_be_full_from_any_write_on(node: FakeNode, form: str) -> None:
    refusals = 0
    for files in range(30):
        ref = claimed(node, f"c-{files}", form)
        with full_after(files, node.folder) as disk:
            if disk_takes(node, ref):
                break
            assert disk.refused
            refusals += 1
            if form != "part":
                node.assert_holds_nothing(ref)
                node.assert_as_before()
        node.reconciler.finish_releases()
        node.sharing_reconciler.run_once()
        left = node.journal.get(ref.uid)
        if left is None or left.state != "prepared":  # else only its spec is missing, and it keeps its share
            node.assert_as_before()
        assert node.prepare(ref)
        with full_after(0, node.folder):
            if form == "part":  # what is destroyed is written down first
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


def test_a_share_whose_partition_has_a_share_of_a_newer_version_waits_for_that_one(node: FakeNode) -> None:
    ours, theirs = (claimed(node, name, "part") for name in ("ours", "theirs"))
    node.prepare(theirs)
    entry = node.entry(theirs)
    (held,) = entry.devices
    newer = replace(held, kind=f"{NEWER_SCHEMA}2", record={}, share=None)
    node.journal.put(replace(entry, devices=(newer,)))

    with pytest.raises(DeviceHeld, match="can only be used by one claim at a time"):
        node.prepare(ours)

    assert node.starts() == [4]
