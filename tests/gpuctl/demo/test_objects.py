"""The pods of the demo's story fill any machine exactly."""

from __future__ import annotations

import pytest

from gpuctl.demo.objects import small_pods, story_pods


@pytest.mark.parametrize("gpu_count", range(1, 17))
def test_the_pods_take_all_gpus_and_one_more_is_left_over(gpu_count: int) -> None:
    pods, late = story_pods(gpu_count)

    assert sum(pod.count for pod in pods) == gpu_count
    assert pods[0].count >= late.count == 1
    assert len({pod.name for pod in (*pods, late)}) == len(pods) + 1


def test_a_node_with_four_gpus_shows_all_kinds_of_pods() -> None:
    pods, _ = story_pods(4)

    assert [(pod.name, pod.count, len(pod.containers)) for pod in pods] == [
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


def test_small_pods_ask_for_one_device_each_of_the_class_of_small_partitions() -> None:
    pods = small_pods(3)

    assert [pod.name for pod in pods] == ["small-0", "small-1", "small-2"]
    (request,) = pods[0].claim()["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "mig-small", "count": 1}
