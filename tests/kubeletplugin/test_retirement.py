"""A node from which the driver is taken away is left as it was, but not while a claim holds a device."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.devices.names import CHANNELS_DRIVER_NAME
from kubeletplugin.retire import Left, NotRetired, retire, retire_channels, until_retired
from tests.clusters import boot_folder, registration_socket
from tests.gpus import DriverError
from tests.kubeletplugin.channel_node import ChannelNode
from tests.kubeletplugin.fake_kubelet import short_folder
from tests.kubeletplugin.fake_node import BOOT, FakeNode
from tests.plugin import ClaimRef, MpsDaemon


class Departing:
    """A node whose plugin ends and is taken away; what it shares with others lies beside its own folder."""

    def __init__(self, folder: Path) -> None:
        data = folder / "plugins" / "gpu.nvidia.com"
        data.mkdir(parents=True)
        self.node = FakeNode(data, "hgx-h100")
        self.node.cdi = folder / "cdi"
        self.node.cdi.mkdir()
        self.node.restart()
        self.left = Left(data, folder / "registry", folder / "mps")
        self.left.registry.mkdir()

    def retire(self) -> None:
        """The plugin ends, and a process comes that takes it away."""
        self.node.restart()
        parts = self.node.instance()
        self.node.leave()
        try:
            retire(parts, self.node.mps, self.left)
        finally:
            parts.peers.close()

    def all_files(self) -> list[str]:
        """What lies in the folders that the plugin shares with others."""
        folders = (self.left.data.parent, self.left.registry, self.node.cdi)
        return sorted(str(path.relative_to(folder)) for folder in folders for path in folder.rglob("*"))

    def end(self, ref: ClaimRef) -> None:
        """The pod and its claim are gone, and nobody told the plugin."""
        del self.node.api[ref.namespace, ref.name]


@pytest.fixture
def departing(tmp_path: Path) -> Iterator[Departing]:
    departing = Departing(tmp_path)
    yield departing
    departing.node.stop()


def test_a_node_that_was_used_is_left_as_it_was(departing: Departing) -> None:
    node = departing.node
    for ref in (
        node.claim("whole", 4),
        node.claim_devices("cut", node.partition(1, "3g-40gb", 4)),
        node.claim_shares("sliced", node.shared("ts-4", 2)),
        node.claim_shares("mps", node.shared("mps-4", 3)),
    ):
        node.prepare(ref)
        departing.end(ref)
    made = node.cut_by_hand(9, 0, 4)
    theirs = (
        departing.left.data.parent / "other.example.com" / "state",
        departing.left.registry / "other.example.com-reg.sock",
        node.cdi / "other.json",
    )
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    for pod_uid in ("", "1234"):
        name = registration_socket(Path("/registry"), "gpu.nvidia.com", pod_uid).name
        (departing.left.registry / name).touch()

    departing.retire()

    found = ["other.example.com", "other.example.com-reg.sock", "other.example.com/state", "other.json"]
    assert departing.all_files() == found, "what others made stays"
    node.assert_as_before()
    assert (node.instances(0), node.instances(1)) == ((made,), ())


def test_while_a_claim_is_prepared_all_of_it_stays_and_it_is_named(departing: Departing) -> None:
    node = departing.node
    kept, gone = node.claim("kept", 0), node.claim("gone", 1)
    node.prepare(kept)
    node.prepare(gone)
    departing.end(gone)

    with pytest.raises(NotRetired, match=r"team/kept") as refused:
        departing.retire()

    assert "gone" not in str(refused.value)
    assert node.spec_path(kept).exists()
    assert departing.left.data.is_dir()
    departing.end(kept)
    departing.retire()
    assert departing.all_files() == []


def test_a_daemon_that_no_claim_accounts_for_is_ended(departing: Departing) -> None:
    node = departing.node
    node.mps.ensure(MpsDaemon(node.whole(), (node.uuid(),)))
    (departing.left.mps / node.whole()).mkdir(parents=True)
    (departing.left.mps / node.whole() / "daemon.json").touch()

    departing.retire()

    assert node.mps.running == {}


def test_a_daemon_that_cannot_be_ended_keeps_the_node_from_being_clean(departing: Departing) -> None:
    node = departing.node
    ref = node.prepared_shares("mps", node.shared("mps-4", 3))
    departing.end(ref)
    node.mps.silent = True

    with pytest.raises(NotRetired, match="could not be put back"):
        departing.retire()
    node.mps.silent = False
    departing.retire()

    assert departing.all_files() == []
    node.assert_as_before()


def test_beside_a_plugin_that_runs_nothing_is_taken_away(departing: Departing) -> None:
    parts = departing.node.instance()
    with pytest.raises(NotRetired, match="another instance"):
        retire(parts, departing.node.mps, departing.left)
    parts.peers.close()

    assert departing.left.data.is_dir()


def test_it_is_tried_until_nothing_is_left_and_told_why_not() -> None:
    failures: list[DriverError] = [NotRetired("a pod runs"), NotRetired("a process runs")]
    told: list[str] = []

    def attempt() -> None:
        if failures:
            raise failures.pop(0)

    until_retired(attempt, lambda _seconds: None, told.append, 1.0, tries=3)
    assert [line.split(" (")[0] for line in told] == ["a pod runs", "a process runs"]

    failures += [NotRetired("a pod runs")] * 3
    with pytest.raises(NotRetired, match="a pod runs"):
        until_retired(attempt, lambda _seconds: None, lambda _: None, 1.0, tries=2)
    assert len(failures) == 1


@pytest.fixture
def with_sockets() -> Iterator[Departing]:
    """The same in a folder that has room for the names of sockets."""
    with short_folder() as folder:
        departing = Departing(folder)
        yield departing
        departing.node.stop()


def test_beside_nvidias_driver_only_what_is_ours_goes(with_sockets: Departing) -> None:
    departing = with_sockets
    theirs = departing.left.data / "checkpoint.json"
    theirs.write_text("{}")
    (departing.left.data / "pu.lock").touch()
    registered, ours = (
        registration_socket(departing.left.registry, "gpu.nvidia.com", pod_uid) for pod_uid in ("", "1234")
    )
    with socket.socket(socket.AF_UNIX) as answering, socket.socket(socket.AF_UNIX) as ended:
        answering.bind(str(registered))
        answering.listen()
        ended.bind(str(ours))
        ended.close()

        departing.retire()

        assert registered.exists()
    assert not ours.exists()
    left = {path.name for path in departing.left.data.iterdir()}
    assert {"checkpoint.json", "pu.lock"} <= left
    assert left.isdisjoint({departing.node.boot_id, "instances", "locks"})


def test_the_files_of_channels_go_once_no_gang_has_one(tmp_path: Path) -> None:
    rack = ChannelNode(tmp_path)
    boot = boot_folder(rack.folder, BOOT)
    ref = rack.claim("gang", 1)
    rack.prepare(ref)
    with short_folder() as registry:
        registration_socket(registry, CHANNELS_DRIVER_NAME).touch()
        registration_socket(registry, "nic.example.com").touch()
        with pytest.raises(NotRetired, match="channels for team/gang"):
            retire_channels(boot, registry)
        rack.unprepare(ref)
        for _ in range(2):
            retire_channels(boot, registry)

        assert [path.name for path in registry.iterdir()] == ["nic.example.com-reg.sock"]
    assert not rack.folder.exists()
    rack.channels.peers.close()
    rack.node.stop()
