"""Records what the released version writes for claims of every kind.

``python -m tests.kubeletplugin.journal.record_released`` does it anew, and needs the history of the project.
The plugin and the MPS supervisor of that version run on a fake node, and what they wrote is copied into
``released/`` beside this module: journal entries, CDI specs, the records of sharing, those of MPS daemons.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from envtest.embedded.api.server import EmbeddedApiServer
from kubeletplugin.wire.names import cdi_spec_file_name
from tests.processes.every_kind import (
    ALL_OF_FRACTIONAL,
    KINDS,
    MADE_GPU,
    Kind,
    cut_in_halves,
    publish_memory,
    put_claim,
)
from tests.processes.node import Node
from tests.processes.two_versions import TwoVersions, Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.processes.node import Object

RECORDED = Path(__file__).parent / "released"
NODE_FOLDER = Path("/tmp/gpu-dra-node")
"""Where the fake node lies: the CDI specs name its files."""

RELEASED_KIND = Kind("released", 0)
RELEASING_KIND = Kind("releasing", MADE_GPU, "-mig-1g-10gb-6")
PREPARING_KIND = Kind("preparing", MADE_GPU, "-mig-1g-10gb-6")
PREPARING_SHARE = Kind("preparing-share", 0, "-mps-4", consumed={"shares": "1"})
REBUILT_KINDS = (
    Kind("rebuilt", 0),
    Kind("rebuilt-partition", MADE_GPU, "-mig-1g-10gb-6"),
    Kind("rebuilt-share", 5, "-ts-4", consumed={"shares": "1"}),
)
STATES: dict[Kind, str] = {
    **dict.fromkeys((*KINDS, ALL_OF_FRACTIONAL, *REBUILT_KINDS), "prepared"),
    PREPARING_KIND: "preparing",
    PREPARING_SHARE: "preparing",
    RELEASING_KIND: "releasing",
    RELEASED_KIND: "released",
}
"""All that is recorded, with the state that the journal has it in."""


class Recorder:
    """Prepares claims with the released version, one kind after the other, and copies what it wrote."""

    def __init__(self, both: TwoVersions, version: Version, target: Path) -> None:
        self._both = both
        self._version = version
        self._target = target
        for name in ("journal", "cdi", "sharing", "mps"):
            (target / name).mkdir(parents=True)

    def everything(self) -> None:
        """Record all of it."""
        with self._both.supervisor(self._version):
            with self._both.plugin(self._version):
                self._ended()
                self._releasing()
                self._interrupted(PREPARING_KIND, "create_compute_instance", _has_gpu_instance)
                self._interrupted(PREPARING_SHARE, "set_compute_mode", lambda _: bool(self._both.records()))
                self._prepared()
            self._rebuilt()

    def _keep(self, *kinds: Kind) -> None:
        """Copy what there is about claims now, and what is new of the sharing."""
        node = self._both.node
        for kind in kinds:
            shutil.copy(node.journal / f"{kind.uid}.json", self._target / "journal")
            spec = node.cdi / cdi_spec_file_name(kind.uid)
            if spec.exists():
                shutil.copy(spec, self._target / "cdi")
        for record in (node.data / "sharing").glob("*.json"):
            if not (self._target / "sharing" / record.name).exists():
                shutil.copy(record, self._target / "sharing")
        for daemon in self._both.mps_dir.glob("*/daemon.json"):
            shutil.copy(daemon, self._target / "mps" / f"{daemon.parent.name}.json")

    def _ended(self) -> None:
        claim = put_claim(self._both.node, RELEASED_KIND)
        self._both.prepare(self._version, claim)
        self._both.unprepare(self._version, claim)
        self._keep(RELEASED_KIND)

    def _releasing(self) -> None:
        machine, claim = self._both.node.machine, put_claim(self._both.node, RELEASING_KIND)
        self._both.prepare(self._version, claim)
        uuid = self._both.entry(claim.uid)["devices"][0]["partition"]["uuid"]
        machine.set_processes(uuid, (4_000_001,))
        self._both.node.unprepare(claim, within_seconds=3, pod_uid=self._version.pod_uid)
        self._keep(RELEASING_KIND)
        machine.set_processes(uuid, ())
        self._both.unprepare(self._version, claim)

    def _interrupted(self, kind: Kind, call: str, true: Callable[[Object], bool]) -> None:
        """A claim whose prepare hangs in a call of NVML."""
        node, claim = self._both.node, put_claim(self._both.node, kind)
        node.machine.hang(call)
        with ThreadPoolExecutor() as pool:
            prepared = pool.submit(self._both.prepare, self._version, claim)
            self._both.wait_for_state(claim.uid, "preparing", true)
            self._keep(kind)
            node.machine.heal()
            prepared.result()
        self._both.unprepare(self._version, claim)

    def _prepared(self) -> None:
        claims = {kind: put_claim(self._both.node, kind) for kind in (*KINDS, ALL_OF_FRACTIONAL)}
        everything = claims.pop(ALL_OF_FRACTIONAL)
        self._both.prepare(self._version, everything)
        self._keep(ALL_OF_FRACTIONAL)
        self._both.unprepare(self._version, everything)
        self._both.prepare(self._version, *claims.values())
        self._keep(*claims)
        self._both.unprepare(self._version, *claims.values())

    def _rebuilt(self) -> None:
        """Claims whose journal was lost between two runs of the plugin."""
        claims = [put_claim(self._both.node, kind) for kind in REBUILT_KINDS]
        with self._both.plugin(self._version) as plugin:
            self._both.prepare(self._version, *claims)
            plugin.stop()
        for claim in claims:
            (self._both.node.journal / f"{claim.uid}.json").unlink()
        with self._both.plugin(self._version) as plugin:
            plugin.wait_for("journal and CDI specs brought together")
            self._keep(*REBUILT_KINDS)
            self._both.unprepare(self._version, *claims)


def _has_gpu_instance(device: Object) -> bool:
    return device["partition"]["gpu_instance_id"] is not None


def record(target: Path) -> None:
    """Record everything into a folder, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(NODE_FOLDER, ignore_errors=True)
    NODE_FOLDER.mkdir()
    with ExitStack() as started:
        started.callback(shutil.rmtree, NODE_FOLDER)
        node = Node(NODE_FOLDER, started.enter_context(EmbeddedApiServer()))
        cut_in_halves(node)
        publish_memory(node)
        both = TwoVersions(node)
        started.callback(both.end_daemons)
        Recorder(both, Version.named("released"), target).everything()


if __name__ == "__main__":
    record(RECORDED)
