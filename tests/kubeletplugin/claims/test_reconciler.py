"""What nobody will unprepare is let go, and what is in doubt is kept."""

from threading import Event, Thread

import pytest

from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import reinstall_driver

MACHINE = "a30-quad"


def test_a_claim_whose_status_makes_no_sense_is_kept(node: FakeNode) -> None:
    ref = node.prepared("train", 1)
    node.api["team", "train"]["status"] = {"allocation": {"devices": {"results": [{"driver": 5}, 7]}}}

    assert node.reconciler.run_once() == ()
    assert node.spec_path(ref).exists()


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
