"""The CDI spec of a claim names the files of the driver that is there, also after another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import reinstall_driver


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
