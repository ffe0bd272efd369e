"""What NVIDIA's own hook does on the same node: it fails open where the project's hook fails closed."""

from typing import Any

from tests.guest.inside.memory.containers import Container
from tests.guest.inside.memory.scene import GIB, MIB, Scene

LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"


def test_it_sets_what_the_containers_environment_says(scene: Scene) -> None:
    container = _container(scene, {LIMIT: "1024"})
    assert container.start(), container.said

    assert scene.limit(container) == 1024 * MIB


def test_without_the_variable_the_container_runs_without_a_limit(scene: Scene) -> None:
    container = _container(scene, {})
    assert container.start(), container.said

    assert scene.limit(container) is None


def test_two_containers_of_one_share_get_it_twice(scene: Scene) -> None:
    containers = [_container(scene, {LIMIT: "8192"}, name) for name in ("a", "b")]
    for one in containers:
        assert one.start(), one.said

    assert [scene.limit(one) for one in containers] == [8 * GIB] * 2


def _container(scene: Scene, variables: dict[str, str], name: str = "theirs") -> Container:
    return scene.container(name=name, variables=variables, extra_hooks=[_hook(scene)])


def _hook(scene: Scene) -> dict[str, Any]:
    program = str(scene.built.nvidia_hook)
    arguments = ["--driver-root", str(scene.node.driver_root), "--gpu-id", scene.uuid()]
    args = ["nvidia-cdi-hook", "apply-cuda-memory-limits", *arguments]
    return {"hookName": "createRuntime", "path": program, "args": args}
