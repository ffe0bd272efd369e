"""Plugin, runtime and hook may end at any moment: nothing runs without its limit, and nothing is lost."""

import pytest

from tests.eventually import eventually
from tests.guest.inside.memory.containers import Container
from tests.guest.inside.memory.scene import GIB, Scene, is_there
from tests.nvml_library.library import NOTHING_IS_SET, SET

SECOND = "plugin-b"


def test_without_the_plugin_nothing_runs(scene: Scene) -> None:
    main = scene.container(scene.claim("8Gi"), seconds=1)
    scene.kill_plugin()
    assert not main.start()
    assert "the kubelet plugin" in main.said
    main.end()
    assert not scene.ran(main)
    scene.start_plugin()


def test_a_container_waits_until_the_plugin_is_back(scene: Scene) -> None:
    main = scene.container(scene.claim("8Gi"))
    scene.kill_plugin()
    starting = main.began()
    eventually("the cgroup is there", lambda: is_there(main.cgroup))
    scene.start_plugin()

    assert starting.wait(60) == 0, main.said
    assert scene.limit_before_it_ran(main) == 8 * GIB


def test_a_plugin_that_is_killed_while_containers_start_keeps_them_within_the_share(scene: Scene) -> None:
    claim = scene.claim("9Gi")
    containers = [scene.container(claim, name=name) for name in ("a", "b", "c")]
    scene.expect(claim, *containers)
    for told in (1, 3):
        scene.double.forget()
        starting = [one.began() for one in containers]
        scene.wait_told(told)
        scene.kill_plugin()
        scene.start_plugin()
        assert [one.wait(60) for one in starting] == [0, 0, 0], [one.said for one in containers]
        assert [scene.limit_before_it_ran(one) for one in containers] == [3 * GIB] * 3
        assert scene.most_together() <= 9 * GIB
        for one in containers:
            one.end()


def test_a_container_that_is_killed_in_the_middle_of_its_start_leaves_nothing(scene: Scene) -> None:
    claim = scene.claim("8Gi")
    main = scene.container(claim)
    scene.double.spoil(SET, "hang")
    starting = main.began()
    eventually("the cgroup is there", lambda: is_there(main.cgroup))
    starting.kill()
    starting.wait()
    main.end()
    scene.double.heal()

    assert not scene.ran(main)
    assert main.start(), main.said
    assert scene.limit_before_it_ran(main) == 8 * GIB
    assert list(scene.limits()) == [main.cgroup]
    assert scene.most_together() == 8 * GIB


def test_two_plugins_divide_one_claim_as_one_would(scene: Scene) -> None:
    claim = scene.claim("8Gi")
    containers = [scene.container(claim, name=f"c{number}") for number in range(4)]
    scene.expect(claim, *containers)
    scene.start_plugin(SECOND)
    assert _started(scene, containers[:2]) == [2 * GIB] * 2
    scene.kill_plugin(SECOND)
    assert _started(scene, containers[2:]) == [2 * GIB] * 2

    assert [scene.limit(one) for one in containers] == [2 * GIB] * 4
    assert scene.most_together() == 8 * GIB
    scene.stop_plugins()
    scene.start_plugin()  # which removes the socket of the one that was killed


@pytest.mark.parametrize("said", ["fail 6", "fail 0", "fail 3"])
def test_a_limit_that_is_lost_is_set_again(scene: Scene, said: str) -> None:
    """Whatever NVML says of a cgroup without limits: that there are none, in numbers or not, or nothing."""
    main = scene.container(scene.claim("8Gi"))
    assert main.start(), main.said
    scene.double.forget()
    assert scene.limit(main) is None
    scene.double.spoil(NOTHING_IS_SET, said)
    scene.order("pass")

    assert scene.limit(main) == 8 * GIB


def _started(scene: Scene, containers: list[Container]) -> list[int]:
    starting = [one.began() for one in containers]
    assert [one.wait(60) for one in starting] == [0] * len(starting), [one.said for one in containers]
    return [scene.limit_before_it_ran(one) for one in containers]
