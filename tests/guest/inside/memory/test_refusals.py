"""A container that cannot be held to its part does not run, and whoever looks at its pod reads why."""

from tests.guest.inside.memory.scene import GIB, Scene
from tests.nvml_library.library import SET

NESTED_NODE = """
set -e
mkdir -p /sys/fs/cgroup/node/runtime
echo $$ >/sys/fs/cgroup/node/cgroup.procs
exec unshare --cgroup --mount sh -ec '
umount --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo $$ >/sys/fs/cgroup/runtime/cgroup.procs
exec "$@"' sh "$@"
"""
"""Runs a command as a container runtime that runs in a container with a cgroup namespace of its own."""


def test_nvml_that_says_yes_and_does_not_hold_lets_nothing_run(scene: Scene) -> None:
    main = scene.container(scene.claim("10Gi"))
    scene.double.spoil(SET, "lie")
    assert not main.start()
    assert "does not enforce" in main.said or "reports none" in main.said
    main.end()
    assert not scene.ran(main)
    scene.double.heal()

    assert main.start(), main.said
    assert scene.limit_before_it_ran(main) == 10 * GIB


def test_nvml_that_fails_lets_nothing_run(scene: Scene) -> None:
    main = scene.container(scene.claim("10Gi"))
    scene.double.spoil(SET, "fail 15")
    assert not main.start()
    assert "GPU_IS_LOST" in main.said
    assert not scene.ran(main)


def test_what_another_container_uses_is_not_taken_from_it(scene: Scene) -> None:
    claim = scene.claim("8Gi")
    first, second = scene.container(claim, name="first"), scene.container(claim, name="second")
    assert first.start(), first.said
    scene.double.use(claim.uuid, first.cgroup, 6 * GIB)
    assert not second.start()
    assert "other containers use or may use 6144 MiB" in second.said
    second.end()
    assert not scene.ran(second)
    assert scene.limit(first) == 6 * GIB
    first.end()

    assert second.start(), second.said
    assert scene.limit_before_it_ran(second) == 8 * GIB
    assert scene.most_together() == 8 * GIB


def test_a_claim_that_is_not_prepared_lets_nothing_run(scene: Scene) -> None:
    claim = scene.claim("8Gi")
    main = scene.container(claim)
    main.look()
    scene.unprepare(claim)
    assert not main.start()
    assert not scene.ran(main)


def test_a_runtime_whose_hooks_see_other_cgroups_than_the_plugin_lets_nothing_run(scene: Scene) -> None:
    """As one that runs in a cgroup namespace of its own, beside which the plugin looks from outside."""
    main = scene.container(scene.claim("8Gi"), within=("sh", "-c", NESTED_NODE, "sh"))
    assert not main.start()
    assert "is gone" in main.said
    assert not scene.ran(main)
