"""Each container has the limit of its part on its own cgroup before its first process runs."""

import pytest

from tests.guest.inside.memory.scene import GIB, MIB, Scene
from tests.nvml_library.library import UNIT

SYSTEMD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8f0c_41.slice"


def test_a_container_has_its_limit_before_it_runs_and_so_has_each_of_its_restarts(scene: Scene) -> None:
    claim = scene.claim("10Gi")
    main = scene.container(claim)
    scene.expect(claim, main)
    for _ in range(3):
        assert main.start(), main.said
        assert scene.limit_before_it_ran(main) == 10 * GIB
        main.end()
    assert scene.most_together() == 10 * GIB


def test_containers_of_different_sizes_on_one_gpu_have_each_its_own(scene: Scene) -> None:
    sizes = {"6Gi": 6 * GIB, "12Gi": 12 * GIB, "1536Mi": 3 * GIB // 2}
    containers = [scene.container(scene.claim(size), name=f"main-{size.lower()}") for size in sizes]
    for container in containers:
        assert container.start(), container.said

    assert [scene.limit_before_it_ran(one) for one in containers] == list(sizes.values())
    assert [scene.limit(one) for one in containers] == list(sizes.values())


def test_containers_of_one_claim_divide_it_also_when_they_start_at_once(scene: Scene) -> None:
    claim = scene.claim("9Gi")
    containers = [scene.container(claim, name=name) for name in ("a", "b", "c")]
    scene.expect(claim, *containers)
    started = [one.began() for one in containers]

    assert [one.wait(60) for one in started] == [0, 0, 0], [one.said for one in containers]
    assert [scene.limit_before_it_ran(one) for one in containers] == [3 * GIB] * 3
    assert scene.most_together() == 9 * GIB


def test_who_was_not_expected_gets_its_part_once_the_others_have_come_down(scene: Scene) -> None:
    """As an ephemeral container, or a second pod that the kubelet does not list yet."""
    claim = scene.claim("8Gi")
    first, second = scene.container(claim, name="first"), scene.container(claim, name="second", pod="other")
    scene.expect(claim, first)
    assert first.start(), first.said
    assert scene.limit(first) == 8 * GIB
    assert second.start(), second.said

    assert [scene.limit(one) for one in (first, second)] == [4 * GIB] * 2
    assert scene.limit_before_it_ran(second) == 4 * GIB
    assert scene.most_together() == 8 * GIB


def test_an_init_container_gives_its_part_back(scene: Scene) -> None:
    claim = scene.claim("8Gi")
    init, main = scene.container(claim, name="init", then="0"), scene.container(claim)
    scene.expect(claim, main)
    assert init.start(), init.said
    assert scene.limit_before_it_ran(init) == 8 * GIB
    init.end()
    assert main.start(), main.said

    assert scene.limit_before_it_ran(main) == 8 * GIB
    assert scene.most_together() == 8 * GIB


def test_variables_of_a_pod_change_nothing(scene: Scene) -> None:
    """Those that NVIDIA's hook reads, higher and lower than the share."""
    for number, mib in enumerate(("65536", "16", "none")):
        variables = {"NVIDIA_GPU_MEMORY_LIMIT": mib, "NVIDIA_GPU_MEMORY_REQUEST": mib}
        container = scene.container(scene.claim("4Gi"), name=f"main-{number}", variables=variables)
        assert container.start(), container.said
        assert scene.limit_before_it_ran(container) == 4 * GIB


@pytest.mark.parametrize(
    ("parent", "of_id"),
    [(SYSTEMD, "cri-containerd-{id}.scope"), ("/kubelet/kubepods/besteffort/pod1", "{id}/nested")],
)
def test_the_limit_is_that_of_the_containers_own_cgroup(scene: Scene, parent: str, of_id: str) -> None:
    container = scene.container(scene.claim("4Gi"), parent=parent, of_id=of_id)
    assert container.start(), container.said

    assert scene.limit_before_it_ran(container) == 4 * GIB
    assert list(scene.limits()) == [container.cgroup]


def test_a_container_without_a_cgroup_namespace_has_the_same(scene: Scene) -> None:
    container = scene.container(scene.claim("4Gi"), namespaces=("pid", "ipc", "uts", "mount"))
    assert container.start(), container.said

    assert scene.limit_before_it_ran(container) == 4 * GIB


def test_a_container_with_two_claims_has_both_on_each_gpu(scene: Scene) -> None:
    claims = [scene.claim("2Gi"), scene.claim("3Gi"), scene.claim("4Gi", gpu=1)]
    container = scene.container(*claims)
    assert container.start(), container.said

    assert scene.limit_before_it_ran(container) == 5 * GIB
    assert scene.limits(gpu=1) == {container.cgroup: 4 * GIB}


def test_a_container_that_outlives_its_claim_stays_limited(scene: Scene) -> None:
    claim = scene.claim("4Gi")
    container = scene.container(claim)
    assert container.start(), container.said
    scene.double.use(claim.uuid, container.cgroup, GIB)
    scene.unprepare(claim)

    left = scene.limit(container)
    assert left is not None
    assert GIB <= left <= 4 * GIB


def test_nvml_that_rounds_up_lets_nobody_have_more_than_the_share(scene: Scene) -> None:
    scene.double.spoil(UNIT, str(192 * MIB))
    container = scene.container(scene.claim("6000Mi"))
    assert container.start(), container.said

    assert scene.limit_before_it_ran(container) == 5952 * MIB
    assert scene.limit(container) == 5952 * MIB
