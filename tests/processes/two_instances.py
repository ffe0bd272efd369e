"""A node on which two instances of the driver run, as in an update, and what a takeover must not change."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass

from kubeletplugin.sharing.mps.processes import daemons
from proto import dra_v1_pb2 as v1
from tests.clusters import Object
from tests.plugin import end_left_over, mps_processes
from tests.processes.every_kind import cut_in_halves, publish_memory
from tests.processes.node import Claimed, Node, new_node
from tests.processes.process import DriverProcess

EARLIER, LATER = "11111111-2222-4333-8444-000000000001", "11111111-2222-4333-8444-000000000002"
"""The instances of the driver, by the UID of the plugin's pod, beside which another may run."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the driver may change on a GPU; of GPU instances the ids, the profiles and the places."""

    compute_mode: str
    time_slice: int
    mig_enabled: bool
    instances: tuple[tuple[int, int, int], ...]


class TwoInstances:
    """A node, and the processes of either instance on it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.mps_dir, self.proc = node.folder / "mps", node.folder / "proc"
        self.proc.mkdir()
        self.before = self.gpus()

    def plugin(self, instance: str) -> AbstractContextManager[DriverProcess]:
        """The kubelet plugin of an instance, registered."""
        return self.node.plugin(pod_uid=instance)

    @contextmanager
    def supervisor(self) -> Iterator[DriverProcess]:
        """An MPS supervisor, serving."""
        flags = (
            *("--mps-dir", str(self.mps_dir), "--driver-root", str(self.node.driver_root)),
            *("--proc-root", str(self.proc), "--no-mounts"),
        )
        with DriverProcess("kubeletplugin.sharing.mps", *flags) as process:
            process.wait_for("serving")
            yield process

    def prepare(self, instance: str, *claims: v1.Claim) -> list[Claimed]:
        """What an instance's plugin answers to the kubelet, without an error."""
        answers = self.node.prepare(*claims, pod_uid=instance)
        assert [answer.error for answer in answers] == [""] * len(claims)
        return answers

    def refused(self, instance: str, *claims: v1.Claim) -> list[str]:
        """Why an instance's plugin does not prepare each of the claims now."""
        answers = self.node.prepare(*claims, within_seconds=3, pod_uid=instance)
        assert all(answer.error for answer in answers)
        return [answer.error for answer in answers]

    def unprepare(self, instance: str, *claims: v1.Claim) -> None:
        """Have an instance's plugin take the claims back."""
        assert self.node.unprepare(*claims, pod_uid=instance) == [""] * len(claims)

    def gpus(self) -> dict[str, Gpu]:
        """What the GPUs are like."""
        return {
            str(pci): Gpu(
                gpu.compute_mode,
                gpu.time_slice,
                gpu.mig.enabled,
                tuple((one.id, one.profile_id, one.placement.start) for one in gpu.mig.instances),
            )
            for pci, gpu in self.node.machine.state.gpus.items()
        }

    def daemons(self) -> dict[str, int]:
        """The process ids of the MPS control daemons, by their names."""
        names = {str(pipes): pipes.parent.name for pipes in self.mps_dir.glob("*/pipe")}
        ours = daemons([process for process in mps_processes() if process.in_our_group])
        return {names[process.pipes]: process.pid for process in ours if process.pipes in names}

    def specs(self) -> dict[str, tuple[int, bytes]]:
        """The CDI specs: which files they are, and what they say."""
        return {path.name: (path.stat().st_ino, path.read_bytes()) for path in self.node.cdi.iterdir()}

    def records(self) -> set[str]:
        """The groups that have a record of their sharing."""
        return {path.stem for path in (self.node.data / "sharing").glob("*.json")}

    def entry(self, uid: str) -> Object:
        """What the journal says of a claim."""
        entry: Object = json.loads((self.node.journal / f"{uid}.json").read_bytes())["entry"]
        return entry

    def states(self) -> dict[str, str]:
        """The states of the claims in the journal, by UID."""
        return {path.stem: self.entry(path.stem)["state"] for path in self.node.journal.glob("*.json")}

    def assert_all_is_put_back(self) -> None:
        """Of all claims only tombstones are left, and the hardware is as it was before."""
        assert set(self.states().values()) <= {"released"}
        assert (self.specs(), self.records(), self.daemons()) == ({}, set(), {})
        assert self.gpus() == self.before
        assert not (self.node.journal / "unreadable").exists()

    def end_daemons(self) -> None:
        """End the MPS daemons that a failed test has left."""
        for pipes in self.mps_dir.glob("*/pipe"):
            end_left_over(pipes)


@contextmanager
def two_instances() -> Iterator[TwoInstances]:
    """A node without any process, for claims of every kind: an admin has cut one of its GPUs in halves."""
    with new_node() as node:
        cut_in_halves(node)
        publish_memory(node)
        both = TwoInstances(node)
        try:
            yield both
        finally:
            both.end_daemons()


@contextmanager
def side_by_side() -> Iterator[TwoInstances]:
    """A node with the plugins of both instances and one MPS supervisor."""
    with two_instances() as both, ExitStack() as processes:
        processes.enter_context(both.supervisor())
        for instance in (EARLIER, LATER):
            processes.enter_context(both.plugin(instance))
        yield both


def kill(process: DriverProcess) -> None:
    """Kill a process and wait until it is gone."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.exit_code()
