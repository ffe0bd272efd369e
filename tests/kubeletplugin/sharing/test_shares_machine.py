"""A state machine over everything that can happen to the shares of a node, in any order.

After each step: what a claim was answered is there, with a daemon that lets it have its limits, and nobody
has more than there is. Once all is well and the keeper has passed, no GPU is in another state than its
shares need, and in the end none is left in any.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from driver.kinds.registry import KINDS
from kubeletplugin.sharing.shares import interval_of, limits_together
from tests.examples import all_examples
from tests.gpus import ClaimBlocked, DriverError
from tests.kubeletplugin.fake_node import STEPS_OF_SHARED_MAKING, Crash, FakeNode
from tests.kubeletplugin.held import cuda_uuid, partition_of
from tests.kubeletplugin.share_node import H100_MIB, MIB, class_slicing, mps, slicing
from tests.plugin import ClaimRef, Entry, HeldDevice, ShareRecord

STEPS = (*STEPS_OF_SHARED_MAKING, "compute mode", "time-slice", "spec written", "committed")
BACK = (
    *("spec removed", "daemon stopped", "compute mode restored", "time-slice restored", "sharing forgotten"),
    *("time-slice", "daemon", "sharing noted", "releasing", "destroyed", "released"),
)
FORMS = (
    *("mps-4", "mps-4", "mps-4 twice", "mps-4 tight", "mps-mem", "ts-4", "ts-4 Short", "ts-4 Long"),
    *("whole", "own MPS", "own two MPS", "own Long", "part", "part mps-2", "part mps-2", "both mps-4"),
)
gpu = st.integers(0, 1)


class SharesOfANode(RuleBasedStateMachine):
    """Drives a FakeNode with two GPUs in play; ``answered`` has the claims that the kubelet may start."""

    claims: Bundle[ClaimRef] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="shares-"))
        self.node = FakeNode(self.folder, "hgx-h100")
        self.answered: set[str] = set()
        self.refs: list[ClaimRef] = []

    def teardown(self) -> None:
        """Whatever happened: once nothing fails any more, all is as it was before."""
        try:
            self.heal()
            for ref in self.refs:
                self.node.unprepare(ref)
            self.pass_of_the_keeper()
            assert not any(entry.holds for entry in self.node.journal.entries())
            assert self.node.store.uids() == ()
            self.node.assert_as_before()
            assert [self.node.starts(number) for number in (0, 1)] == [[], []]
            assert self.node.prepare(self.node.claim("all", 0, 1))
        finally:
            self.node.stop()
            shutil.rmtree(self.folder)

    @rule(target=claims, form=st.sampled_from(FORMS), number=gpu)
    def create(self, form: str, number: int) -> ClaimRef:
        """Schedulers that race hand out more than there is."""
        ref = self.made(f"claim-{len(self.refs)}", form, number)
        self.refs.append(ref)
        return ref

    def made(self, name: str, form: str, number: int) -> ClaimRef:
        node, (what, _, how) = self.node, form.partition(" ")
        partition = node.partition(number, "3g.40gb", 4)
        if what == "whole":
            return node.claim(name, number)
        if what == "own":
            gpus = (0, 1) if how == "two MPS" else (number,)
            return node.claim(name, *gpus, config=slicing("Long") if how == "Long" else mps())
        if what == "part":
            return (
                node.claim_shares(name, f"{partition}-{how}") if how else node.claim_devices(name, partition)
            )
        device = node.shared(what, number)
        if what == "both":
            return node.claim_shares(name, node.shared(how, 0), node.shared(how, 1))
        if what == "mps-mem":
            return node.claim_shares(name, device, consumed={"memory": "30Gi"})
        extra: dict[str, Any] = {"config": class_slicing(how)} if what == "ts-4" and how else {}
        if how == "tight":
            extra = {"config": mps(defaultActiveThreadPercentage=10)}
        return node.claim_shares(name, f"{device}+{device}" if how == "twice" else device, **extra)

    @rule(ref=claims)
    def prepare(self, ref: ClaimRef) -> None:
        try:
            assert self.node.prepare(ref)
        except DriverError:
            return  # who was answered before is still prepared
        self.answered.add(ref.uid)

    @rule(ref=claims)
    def unprepare(self, ref: ClaimRef) -> None:
        """Of what is no partition nothing keeps a claim from being let go, but a disk."""
        self.answered.discard(ref.uid)
        entry = self.node.journal.get(ref.uid)
        parts = entry is not None and any(partition_of(held) is not None for held in entry.devices)
        with contextlib.suppress(*([DriverError] if parts else [])):
            left = self.node.unprepare(ref)
            after = self.node.journal.get(ref.uid)
            is_held = after is not None and after.holds
            assert not is_held or (left is not None and after is not None and after.state == "releasing")

    @rule(ref=claims, step=st.sampled_from(STEPS))
    def crash_in_prepare(self, ref: ClaimRef, step: str) -> None:
        self.node.crash_after = step
        try:
            self.prepare(ref)
        except Crash:
            if step == "spec written":
                self.answered.add(ref.uid)
        self.restart()

    @rule(ref=claims, step=st.sampled_from(BACK))
    def crash_in_unprepare(self, ref: ClaimRef, step: str) -> None:
        self.node.crash_after = step
        with contextlib.suppress(Crash):
            self.unprepare(ref)
        self.restart()

    @rule(step=st.sampled_from(BACK))
    def crash_in_the_keeper(self, step: str) -> None:
        self.node.crash_after = step
        with contextlib.suppress(Crash):
            self.node.sharing_reconciler.run_once()
        self.restart()

    @rule()
    def restart(self) -> None:
        self.node.crash_after = None
        self.node.restart()

    @rule()
    def reboot(self) -> None:
        self.node.crash_after = None
        self.node.reboot()
        self.answered.clear()

    @rule()
    def the_supervisor_falls_silent(self) -> None:
        self.node.mps.silent = True

    @rule()
    def the_supervisor_fails_once(self) -> None:
        self.node.mps.failures.append(ClaimBlocked("it did not work", "try again"))

    @rule()
    def nvidia_smi_fails_once(self) -> None:
        self.node.time_slices.failures.append(ClaimBlocked("it did not work", "try again"))

    @rule(
        call=st.sampled_from(["set_compute_mode", "compute_mode", "create_gpu_instance"]), after=st.booleans()
    )
    def nvml_will_fail(self, call: str, *, after: bool) -> None:
        """Before or after it has done its work."""
        after = after and call != "compute_mode"
        (self.node.machine.fail_after if after else self.node.machine.fail)(call, times=1)

    @rule(number=gpu)
    def a_record_is_spoilt(self, number: int) -> None:
        """But for one of several GPUs that no claim has any more: then nothing tells of the other GPUs."""
        path = self.node.boot_files / "sharing" / f"{self.node.whole(number)}.json"
        held = any(held.share and held.share.group == path.stem for _, held in self.sharers())
        if path.exists() and (held or '","' not in path.read_text().partition('"gpus"')[2].partition("]")[0]):
            path.write_text('{"group":')
            self.node.read_anew()

    @rule()
    def a_daemon_dies(self) -> None:
        """The supervisor runs it again; here that is left to the keeper."""
        if self.node.mps.running and not self.node.mps.silent:
            self.node.mps.running.popitem()
            self.all_is_well_after_a_pass()

    @rule()
    def heal(self) -> None:
        self.node.machine.heal()
        self.node.mps.silent = False
        self.node.mps.failures.clear()
        self.node.time_slices.failures.clear()

    @rule()
    def all_is_well_after_a_pass(self) -> None:
        """Every group is as the journal has its shares, and what has none is as it was.

        A prepare that ended before it had touched anything is left as it is.
        """
        self.heal()
        self.node.reconciler.finish_releases()
        self.pass_of_the_keeper()
        wanted: dict[str, list[tuple[str, str, ShareRecord]]] = {}
        begun = set(self.node.recorded())
        for entry, held in self.sharers():
            share = held.share
            assert share is not None
            if entry.state == "prepared" and not (share.strategy == "TimeSlicing" and partition_of(held)):
                assert share.group in begun
            wanted.setdefault(share.group, []).append((entry.uid, held.request, share))
        assert begun <= set(wanted)
        running = self.node.mps.running
        assert set(running) == {group for group in begun if wanted[group][0][2].strategy == "MPS"}
        for group, daemon in running.items():
            assert daemon.active_thread_percentage == max(self.percentages(wanted[group]))
        for number in (0, 1):
            self.gpu_is_as_its_shares_need_it(number)

    def pass_of_the_keeper(self) -> None:
        self.node.mps.note_use()
        self.node.sharing_reconciler.follow()
        self.node.sharing_reconciler.run_once()

    def gpu_is_as_its_shares_need_it(self, number: int) -> None:
        here, begun = str(self.node.gpus[number]), self.node.recorded()
        shares = [
            held.share
            for _, held in self.sharers()
            if held.pci == here and not partition_of(held) and held.share and held.share.group in begun
        ]
        exclusive = any(share.group in self.node.mps.running for share in shares)
        assert self.node.compute_mode(number) == ("exclusive-process" if exclusive else "default")
        assert self.node.interval(number) == interval_of(shares)

    def percentages(self, shares: list[tuple[str, str, ShareRecord]]) -> Iterator[int]:
        """What each client has, the shares of one request together."""
        for client in {(uid, request) for uid, request, _ in shares}:
            together = [share for uid, request, share in shares if (uid, request) == client]
            yield limits_together(together[:1] if together[0].shares == 0 else together)[0]

    def sharers(self) -> list[tuple[Entry, HeldDevice]]:
        """The shares that claims have in this boot."""
        return [
            (entry, held)
            for entry in self.node.journal.entries()
            if entry.state in ("preparing", "prepared")
            for held in entry.devices
            if held.share is not None
        ]

    @invariant()
    def what_was_answered_is_there(self) -> None:
        for uid in self.answered:
            entry = self.node.journal.get(uid)
            assert entry is not None
            assert entry.state == "prepared"
            assert self.node.store.read(uid)
            for held in entry.devices:
                if held.share is not None and held.share.strategy == "MPS":
                    self.is_served(held, held.share)

    def is_served(self, held: HeldDevice, share: ShareRecord) -> None:
        daemon = self.node.mps.running[share.group]
        assert daemon.active_thread_percentage >= share.active_thread_percentage
        mib = daemon.pinned_memory_mib[daemon.devices.index(cuda_uuid(held))]
        assert mib == 0 or mib >= share.pinned_memory_mib > 0
        if partition_of(held) is None:
            assert (
                self.node.machine.state.gpus[self.node.machine.pci(held.pci)].compute_mode
                == "exclusive-process"
            )

    @invariant()
    def nobody_has_more_than_there_is(self) -> None:
        taken: dict[str, list[ShareRecord]] = {}
        for entry in self.node.journal.entries():
            for held in entry.devices if entry.holds and entry.state != "releasing" else ():
                if held.share is not None:
                    taken.setdefault(held.device, []).append(held.share)
        for device, shares in taken.items():
            name = KINDS.parse(device)
            form = name.shared if name else None
            if form is not None and form.shares is not None:
                assert sum(share.shares for share in shares) <= form.shares
            assert sum(share.memory_bytes for share in shares) <= H100_MIB * MIB


SharesOfANode.TestCase.settings = settings(
    max_examples=all_examples(60), stateful_step_count=30, deadline=None
)
test_shares_of_a_node = SharesOfANode.TestCase
