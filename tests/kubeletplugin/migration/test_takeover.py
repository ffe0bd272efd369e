"""What NVIDIA's driver prepared is held, answered for and let go by this one, or nothing is touched."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubeletplugin.claims.files import Specs
from kubeletplugin.kubelet.wire.containers import ClaimInUse
from kubeletplugin.migration.checkpoint import decode
from kubeletplugin.migration.takeover import (
    CannotTakeOver,
    Origin,
    Surroundings,
    TakeOver,
    decide,
    origins,
    take_over_claims,
)
from tests.clusters import Object
from tests.gpus import ClaimRefused, DeviceHeld, NodeIncomplete, NodeState, gpu_device_name
from tests.kubeletplugin.fake_node import BOOT, NODE, POOL, Crash, FakeNode
from tests.kubeletplugin.migration.nvidia_state import (
    checkpoint,
    claim,
    gpu,
    partition,
    slice_of,
    told,
    write_spec,
)
from tests.kubeletplugin.shown_node import ONE
from tests.plugin import ClaimRef, PreparedDevice

UID = "8c79cff1-4631-4c6e-b65b-82a9519bd130"
OTHER = "7b81f9de-9337-410d-b95c-e770431cfb4c"
REF = ClaimRef("team", "train", UID)
PART = "gpu-0-mig-1g10gb-19-6"


class Scene:
    """A node on which NVIDIA's driver has prepared claims and is gone."""

    def __init__(self, folder: Path) -> None:
        self.node = FakeNode(folder, "hgx-h100")
        self.claims: dict[str, Object] = {}
        self.users: tuple[ClaimInUse, ...] = ()
        self.origins: dict[str, Origin] = {}
        self.file = folder / "checkpoint.json"

    @property
    def uuid(self) -> str:
        return self.node.discovery.snapshot().gpus[0].uuid

    def whole(self, uid: str = UID, **more: Any) -> None:
        """A claim has the first GPU."""
        self.claims[uid] = {**claim([gpu(self.uuid, told(uid, NODE, "gpu-0"))]), **more}
        write_spec(self.node.cdi, uid, "gpu-0")
        self._write()

    def cut(self, origin: Origin | None, name: str = PART) -> None:
        """A claim has a partition of the first GPU."""
        made = self.node.cut_by_hand(ONE, 6, 1)
        found = self.node.discovery.snapshot().gpus[0].mig
        assert found is not None
        device = partition(found.partitions[0].uuid, self.uuid, 0, made.id, 0, told(UID, NODE, name))
        self.claims[UID] = claim([device])
        if origin is not None:
            self.origins[name] = origin
        write_spec(self.node.cdi, UID, name)
        self._write()

    def decide(self, boot_id: str = BOOT) -> TakeOver:
        return decide(decode(self.file.read_bytes()), boot_id, self._look)

    def take_over(self) -> tuple[str, ...]:
        node = self.node
        return take_over_claims(self.decide(), self.file, node.store, node.preparer.adopt)

    def blocked(self) -> list[tuple[str, str, int | None]]:
        state: NodeState = self.node.watch.state()
        return [
            (str(one.pci), one.reason, None if one.span is None else one.span.start) for one in state.blocked
        ]

    def _look(self) -> Surroundings:
        return Surroundings(
            NODE, self.node.driver_generation, self.node.discovery.snapshot(), self.origins, self.users
        )

    def _write(self) -> None:
        self.file.write_bytes(checkpoint(self.claims, BOOT))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_claim_is_answered_as_that_driver_answered_it_and_can_be_let_go(scene: Scene) -> None:
    scene.whole()
    assert scene.take_over() == (UID,)
    (path,) = scene.node.cdi.iterdir()
    assert path == scene.node.spec_path(REF)
    assert [device["name"] for device in json.loads(path.read_bytes())["devices"]] == [f"{UID}-gpu-0"]
    assert "FROM=nvidia" not in path.read_text()
    health = scene.node.told_health()
    for pool, device in ((NODE, "gpu-0"), (POOL, gpu_device_name(scene.node.gpus[0]))):
        assert (health[device].pool, health[device].health.word) == (pool, "Healthy")
    cdi = (f"k8s.gpu.nvidia.com/claim={UID}-gpu-0",)
    assert scene.node.prepare(REF) == (PreparedDevice(("gpu",), NODE, "gpu-0", cdi),)
    assert not scene.file.exists()
    assert scene.node.unprepare(REF) is None
    assert scene.blocked() == []
    assert list(scene.node.cdi.iterdir()) == []


def test_its_gpu_is_blocked_and_refused_to_others_until_it_ends(scene: Scene) -> None:
    scene.whole()
    scene.take_over()
    pci = str(scene.node.gpus[0])
    assert scene.blocked() == [(pci, "held-by-claim", None)]
    assert scene.node.watch.state().held == (gpu_device_name(scene.node.gpus[0]),)
    other = scene.node.claim("other", 0)
    with pytest.raises(DeviceHeld):
        scene.node.prepare(other)
    scene.node.unprepare(REF)
    assert scene.blocked() == []
    assert len(scene.node.prepare(other)) == 1


def test_a_crash_in_between_is_finished_by_the_next_start(scene: Scene) -> None:
    scene.whole()
    scene.node.crash_after = "taken over"
    with pytest.raises(Crash):
        scene.take_over()
    scene.node.restart()
    assert scene.take_over() == ()
    scene.node.reconciler.restore_specs()
    assert [path.name for path in scene.node.cdi.iterdir()] == [scene.node.spec_path(REF).name]
    assert scene.node.prepare(REF)[0].device == "gpu-0"


def test_a_claim_that_has_ended_meanwhile_is_not_brought_back(scene: Scene) -> None:
    scene.whole()
    decided, left = scene.decide(), scene.file.read_bytes()
    scene.take_over()
    scene.node.unprepare(REF)
    scene.file.write_bytes(left)
    assert take_over_claims(decided, scene.file, scene.node.store, scene.node.preparer.adopt) == ()
    assert scene.blocked() == []


def test_a_spec_that_cannot_be_made_yet_leaves_the_one_that_is_there(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.whole()

    def missing(*_: object) -> None:
        raise NodeIncomplete("no libcuda", "install the driver")

    with monkeypatch.context() as patched:
        patched.setattr(Specs, "spec", missing)
        scene.take_over()
    assert [path.suffix for path in scene.node.cdi.iterdir()] == [".yaml"]
    scene.node.reconciler.restore_specs()
    assert [path.suffix for path in scene.node.cdi.iterdir()] == [".json"]


@pytest.mark.parametrize(
    ("origin", "name", "why"),
    [
        (None, PART, "it is not known whether its partition .* was made for it"),
        ("made", "gpu-0-mig-1g10gb-19-5", "is a different one now"),
    ],
)
def test_a_partition_of_which_not_all_is_known_is_not_taken_over(
    scene: Scene, origin: Origin | None, name: str, why: str
) -> None:
    scene.cut(origin, name)
    with pytest.raises(CannotTakeOver, match=why):
        scene.decide()


@pytest.mark.parametrize(("origin", "left"), [("made", 0), ("static", 1)])
def test_a_partition_that_was_made_for_the_claim_is_destroyed_with_it_and_one_of_an_admin_is_not(
    scene: Scene, origin: Origin, left: int
) -> None:
    scene.cut(origin)
    scene.take_over()
    assert scene.blocked() == [(str(scene.node.gpus[0]), "held-by-claim", 6)]
    assert scene.node.prepare(REF)[0].device == PART
    assert len(scene.node.instances()) == 1
    scene.node.unprepare(REF)
    assert len(scene.node.instances()) == left


def test_the_slices_tell_who_made_a_partition() -> None:
    kind = {"type": {"string": "mig"}}
    found = slice_of(
        NODE,
        [
            {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": "GPU-1"}}},
            {"name": "a", "attributes": {**kind, "uuid": {"string": "MIG-1"}}},
            {"name": "b", "attributes": kind, "consumesCounters": [{"counterSet": "gpu-0"}]},
            {"name": "c", "attributes": kind},
        ],
    )
    ours = slice_of(NODE, [{"name": "d", "attributes": {**kind, "uuid": {"string": "MIG-2"}}}])
    ours["spec"]["pool"]["name"] = f"{NODE}/gpu.nvidia.com"
    assert origins([found, ours], NODE) == {"a": "static", "b": "made"}


def test_one_claim_that_cannot_be_taken_over_keeps_all_as_they_are(scene: Scene) -> None:
    scene.whole()
    scene.whole(OTHER, checkpointState="PrepareStarted", name="other", namespace="team")
    before = scene.file.read_bytes()
    with pytest.raises(CannotTakeOver) as refused:
        scene.take_over()
    assert "1 of 2 claims" in str(refused.value)
    assert "team/other" not in str(refused.value)
    assert f"claim team/other (UID {OTHER}) of pod train" in refused.value.logged
    assert scene.file.read_bytes() == before
    assert scene.node.journal.entries() == ()
    assert {path.suffix for path in scene.node.cdi.iterdir()} == {".yaml"}


def test_the_kubelet_tells_claim_and_pods_by_name(scene: Scene) -> None:
    scene.whole()
    scene.users = (ClaimInUse("team", "train", "train-0", frozenset({f"{UID}-gpu-0"})),)
    scene.take_over()
    entry = scene.node.journal.get(UID)
    assert entry is not None
    assert (entry.namespace, entry.name) == ("team", "train")

    scene.whole(OTHER, preparedDevices=[{"devices": [], "configState": {"mpsControlDaemonID": "x"}}])
    scene.users = (ClaimInUse("team", "other", "other-0", frozenset({f"{OTHER}-gpu-0"})),)
    with pytest.raises(CannotTakeOver) as refused:
        scene.decide()
    assert "claim team/other of pod team/other-0: " in refused.value.logged


def test_claims_of_an_earlier_boot_have_ended(scene: Scene) -> None:
    scene.whole()
    decided = scene.decide("boot-2")
    assert decided == TakeOver(ended=(UID,))
    take_over_claims(decided, scene.file, scene.node.store, scene.node.preparer.adopt)
    assert list(scene.node.cdi.iterdir()) == []
    assert not scene.file.exists()
    assert scene.node.journal.entries() == ()


def test_a_gpu_that_is_not_there_another_pool_and_other_cdi_devices_are_not_believed(scene: Scene) -> None:
    for uuid, answer in (
        ("GPU-gone", told(UID, NODE, "gpu-0")),
        (scene.uuid, told(UID, "node-b", "gpu-0")),
        (scene.uuid, {**told(UID, NODE, "gpu-0"), "CDIDeviceIDs": ["k8s.gpu.nvidia.com/claim=x"]}),
        (scene.uuid, {**told(UID, NODE, "gpu-0"), "CDIDeviceIDs": []}),
    ):
        scene.claims[UID] = claim([gpu(uuid, answer)])
        scene.file.write_bytes(checkpoint(scene.claims))
        with pytest.raises(CannotTakeOver):
            scene.decide()


def test_a_claim_of_an_older_version_is_in_use_by_the_name_of_its_device(scene: Scene) -> None:
    scene.claims[UID] = claim([gpu(scene.uuid, told(UID, NODE, "gpu-0", cdi_class="device"))])
    scene.file.write_bytes(checkpoint(scene.claims, v2=False))
    scene.take_over()
    node = scene.node
    node.in_use = {"gpu-0"}
    assert [node.reconciler.run_once() for _ in range(3)] == [(), (), ()]
    node.in_use = set()
    assert [node.reconciler.run_once() for _ in range(2)] == [(), (UID,)]


def test_a_claim_whose_name_is_known_is_kept_while_the_api_has_it_allocated(scene: Scene) -> None:
    scene.whole()
    scene.users = (ClaimInUse("team", "train", "train-0", frozenset({f"{UID}-gpu-0"})),)
    scene.take_over()
    node = scene.node
    node.claim_devices("train", "gpu-0", uid=UID)
    results = node.api["team", "train"]["status"]["allocation"]["devices"]["results"]
    results[0]["pool"] = NODE
    assert node.reconciler.run_once() == ()
    del node.api["team", "train"]
    assert node.reconciler.run_once() == (UID,)


def test_a_claim_that_is_only_allocated_from_those_slices_is_refused_for_good(scene: Scene) -> None:
    ref = scene.node.claim_devices("late", "gpu-3")
    scene.node.api["team", "late"]["status"]["allocation"]["devices"]["results"][0]["pool"] = NODE
    with pytest.raises(ClaimRefused, match="delete the pod, so that it is scheduled again"):
        scene.node.prepare(ref)
