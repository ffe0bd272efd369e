"""The CDI spec of a claim names the files of the driver that is there, also after another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.devices.names import gpu_device_name
from driver.errors import DeviceHeld
from driver.kinds.partition.names import static_device_name
from kubeletplugin.claims.metadata import CONTAINER_FOLDER
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.cut_node import THREE, foreign
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import reinstall_driver
from tests.kubeletplugin.share_node import mps


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeNode]:
    made = FakeNode(tmp_path)
    made.driver_generation = "one load"
    yield made
    made.stop()


def replace_driver(node: FakeNode, _: ClaimRef) -> None:
    """Load another version of the driver."""
    node.machine.driver_back("575.51.03")
    node.driver_generation = "another load"
    reinstall_driver(node.driver_root, node.machine)


def lose_journal(node: FakeNode, ref: ClaimRef) -> None:
    """Start the plugin again without the claim's entry in the journal."""
    (node.boot_files / "journal" / f"{ref.uid}.json").unlink()
    assert node.restart().rebuilt == (ref.uid,)


@pytest.mark.parametrize("restarts", [True, False], ids=["the plugin was away", "no pass came between"])
def test_a_driver_that_was_replaced_while_nobody_looked_is_seen(node: FakeNode, restarts: bool) -> None:
    ref = node.claim("train", 0)
    node.prepare(ref)
    before, version = node.spec_path(ref).read_text(), node.machine.state.driver_version

    replace_driver(node, ref)
    if restarts:
        node.restart()
    node.reconciler.restore_specs()

    assert node.spec_path(ref).read_text() == before.replace(version, "575.51.03") != before


@pytest.mark.parametrize("lost_before", [True, False], ids=["lost before", "lost meanwhile"])
def test_a_claim_whose_journal_was_lost_gets_the_files_of_the_driver_that_replaces_another(
    node: FakeNode, lost_before: bool
) -> None:
    """What only its spec tells stays there: the mount of its metadata."""
    ref = node.claim("train", 0)
    node.prepare(ref)
    before, version = node.spec_path(ref).read_text(), node.machine.state.driver_version
    assert CONTAINER_FOLDER in before

    for step in (lose_journal, replace_driver) if lost_before else (replace_driver, lose_journal):
        step(node, ref)
    node.reconciler.restore_specs()

    assert node.spec_path(ref).read_text() == before.replace(version, "575.51.03") != before
    node.steps.clear()
    node.reconciler.restore_specs()
    assert node.steps == []
    with pytest.raises(DeviceHeld):
        node.prepare(node.claim("thief", 0))
    node.unprepare(ref)
    node.prepare(node.claim("next", 0))


@pytest.mark.parametrize(
    "device", ["made", "of an admin", "time-slices", "MPS", "MPS of its own pods", "moved"]
)
def test_a_claim_whose_journal_was_lost_keeps_its_spec_where_that_alone_knows_what_it_has(
    tmp_path: Path, device: str
) -> None:
    node = FakeNode(tmp_path, "hgx-h100")
    node.driver_generation = "one load"
    gpu = gpu_device_name(node.gpus[0])
    if device == "of an admin":
        foreign(node, THREE, 4, 4)
    ref = {
        "made": lambda: node.claim_devices("train", node.partition(0, "1g.10gb", 6)),
        "of an admin": lambda: node.claim_devices("train", static_device_name(node.gpus[0], "3g.40gb", 4)),
        "time-slices": lambda: node.claim_shares("train", f"{gpu}-ts-2"),
        "MPS": lambda: node.claim_shares("train", f"{gpu}-mps-2"),
        "MPS of its own pods": lambda: node.claim("train", 0, config=mps()),
        "moved": lambda: node.claim("train", 0),
    }[device]()
    node.prepare(ref)
    before = node.spec_path(ref).read_bytes()

    lose_journal(node, ref)
    replace_driver(node, ref)
    if device == "moved":
        node.machine.set_minors({0: 1, 1: 0})
    node.reconciler.restore_specs()

    assert node.spec_path(ref).read_bytes() == before
    entry = node.journal.get(ref.uid)
    assert entry is not None
    assert not node.preparer.renew(entry)
    node.stop()


def test_specs_of_prepared_claims_name_the_files_of_a_driver_that_replaces_another(tmp_path: Path) -> None:
    """A container that starts again would mount what is not there any more."""
    node = FakeNode(tmp_path)
    ref = node.claim("train", 0)
    node.prepare(ref)
    node.reconciler.restore_specs()
    before, version = node.spec_path(ref).read_text(), node.machine.state.driver_version

    (node.driver_root / "usr").rename(node.driver_root / "away")
    node.reconciler.restore_specs()
    assert node.spec_path(ref).read_text() == before, "while there is none, what stands stays"
    (node.driver_root / "away").rename(node.driver_root / "usr")
    node.machine.driver_back("575.51.03")
    reinstall_driver(node.driver_root, node.machine)
    node.reconciler.restore_specs()

    after = node.spec_path(ref).read_text()
    assert after == before.replace(version, "575.51.03") != before
    node.steps.clear()
    node.reconciler.restore_specs()
    assert node.steps == []
    node.stop()
