"""``gpuctl web`` shows pods that get GPUs or wait for them, and GPUs that fall ill and get well."""

from __future__ import annotations

from envtest.client import paths
from gpuctl.demo.driver_node import DriverNode
from tests.flow.claims import gpu_pod, make_claim, make_template, request, start
from tests.flow.page_scene import served_page


def test_pods_and_sick_gpus_are_on_the_page_as_long_as_they_are_there(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    with served_page(cluster) as page:
        page.wait_words("", "node-0", "8 GPUs: 8 free")

        start(cluster, namespace, gpu_pod("train"))
        page.wait_words("", "8 GPUs: 7 free, 1 whole", "No pod waits for devices")
        page.wait_words("node/node-0", "whole, 100 % held by 1 claim", "gpu.nvidia.com train")

        make_claim(cluster, namespace, "nine", request(count=9))
        cluster.api.create(gpu_pod("greedy", "nine"), namespace)
        page.wait_words("", f"{namespace}/greedy", "Waiting pods 1", "the most on one node is 8")
        answer = page.wait_words(
            f"pod/{namespace}/greedy", "What helps", "request gpu: 9 devices of class gpu.nvidia.com"
        )
        assert "The scheduler says" in answer
        assert "may not read" not in answer
        cluster.api.delete(paths.pod("greedy", namespace), grace_seconds=0)

        driver.machine.lose(7)
        page.wait_words("", "gpu.nvidia.com/gpu-lost", "Sick 1", "1 unavailable, 1 whole; 1 sick")
        driver.machine.restore(7)
        page.wait_words("", "No device is tainted")

        cluster.api.delete(paths.pod("train", namespace), grace_seconds=0)
        page.wait_words("", "8 GPUs: 8 free", "No pod waits for devices")
