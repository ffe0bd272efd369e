"""The NVIDIA driver was loaded anew within a boot: nothing that was made on the hardware is there."""

from collections.abc import Callable

import pytest

from kubeletplugin.reports.device_status import Observed, claim_statuses
from tests.gpus import DeviceHeld, gpu_device_name
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.share_node import class_slicing
from tests.kubeletplugin.shown_node import ONE


@pytest.fixture
def reload(node: FakeNode) -> Callable[[], None]:
    """Loads the driver anew: the hardware forgets what was set, the plugin runs on."""
    node.driver_generation = "41"

    def loaded() -> None:
        node.machine.reboot()
        node.mps.running.clear()
        node.driver_generation = str(int(node.driver_generation) + 1)

    return loaded


def test_a_partition_is_made_anew_when_the_kubelet_asks_again(
    node: FakeNode, reload: Callable[[], None]
) -> None:
    ref = node.prepared_devices("train", node.part())
    reload()
    assert node.instances() == ()

    node.prepare(ref)

    assert len(node.instances()) == 1
    (made,) = node.handle().mig_devices()
    assert node.partition_uuid(ref) == made.uuid
    node.unprepare(ref)
    assert node.instances() == ()


def test_what_somebody_else_made_after_the_reload_is_left_alone(
    node: FakeNode, reload: Callable[[], None]
) -> None:
    """It lies where the claim's partition lay, with the same profile and the same id."""
    ref = node.prepared_devices("train", node.part())
    reload()
    theirs = node.cut_by_hand(ONE, 6, 1)

    node.unprepare(ref)

    assert node.instances() == (theirs,)
    assert not node.entry(ref).holds


def test_a_share_is_set_up_anew_when_the_kubelet_asks_again(
    node: FakeNode, reload: Callable[[], None]
) -> None:
    served = node.claim_shares("served", node.shared("mps-4"))
    sliced = node.claim_shares("sliced", node.shared("ts-4", 1), config=class_slicing("Long"))
    for ref in (served, sliced):
        node.prepare(ref)
    reload()
    assert (node.compute_mode(), node.interval(1)) == ("default", "Default")

    for ref in (served, sliced):
        node.prepare(ref)

    assert (node.compute_mode(), node.interval(1)) == ("exclusive-process", "Long")
    for ref in (served, sliced):
        node.unprepare(ref)
    node.assert_as_before()


def test_what_a_container_has_from_a_deleted_claim_stays_blocked(
    node: FakeNode, reload: Callable[[], None]
) -> None:
    """Whoever else is given the GPU would be refused as before the reload."""
    (device,) = node.prepare(node.claim("train", 1))
    del node.api["team", "train"]
    node.use(device)
    node.reconciler.run_once()
    (before,) = node.watch.state().blocked
    reload()

    assert node.watch.state().blocked == (before,)
    with pytest.raises(DeviceHeld):
        node.prepared("next", 1)


def test_the_pods_of_what_is_gone_are_told_to_go(node: FakeNode, reload: Callable[[], None]) -> None:
    partition, whole = node.part(), gpu_device_name(node.gpus[1])
    for name, device in (("cut", partition), ("whole", whole)):
        node.prepared_devices(name, device)
    share = node.shared("ts-4", 2)
    node.prepared_shares("turns", share)
    reload()

    health = {told.device: told for told in node.told_health().values()}
    known = {(told.pool, told.device): told.health for told in health.values()}
    claims = claim_statuses(node.journal.held(), Observed(node.kinds, healths=known))
    ready = {device.device: device.ready for claim in claims for device in claim.devices}

    for gone in (partition, share):
        assert (health[gone].health.word, ready[gone].status) == ("Unhealthy", "False")
        assert ready[gone].reason == "DriverReloaded"
        assert "delete the pod" in ready[gone].message
    assert (health[whole].health.word, ready[whole].status) == ("Healthy", "True"), "a restart is enough"
