"""The pods of the demo's story fill any machine exactly."""

from __future__ import annotations

import pytest

from gpuctl.demo_objects import story_pods


@pytest.mark.parametrize("gpu_count", range(1, 17))
def test_the_pods_take_all_gpus_and_one_more_is_left_over(gpu_count: int) -> None:
    pods, late = story_pods(gpu_count)

    assert sum(pod.gpus for pod in pods) == gpu_count
    assert pods[0].gpus >= late.gpus == 1
    assert len({pod.name for pod in (*pods, late)}) == len(pods) + 1


def test_a_node_with_four_gpus_shows_all_kinds_of_pods() -> None:
    pods, _ = story_pods(4)

    assert [(pod.name, pod.gpus, len(pod.containers)) for pod in pods] == [
        ("notebook", 1, 1),
        ("train", 2, 1),
        ("duo", 1, 2),
    ]


def test_every_container_of_a_pod_uses_its_claim() -> None:
    pods, _ = story_pods(4)
    for pod in pods:
        spec = pod.pod()["spec"]
        (entry,) = spec["resourceClaims"]
        assert entry["resourceClaimName"] == pod.claim()["metadata"]["name"]
        used = [container["resources"]["claims"] for container in spec["containers"]]
        assert used == [[{"name": entry["name"]}]] * len(pod.containers)
