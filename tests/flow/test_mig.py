"""MIG partitions: found, made on request, taken back, and never in the way of whole GPUs."""

from tests.clusters import DriverNode, Object, paths
from tests.flow.claims import (
    allocated,
    claim_of,
    gpu_pod,
    make_template,
    request,
    start,
    wait_released,
    wait_running,
)
from tests.flow.mig_scene import (
    RULES,
    admin_clears,
    admin_cuts,
    configured,
    cut,
    end,
    kind,
    offered,
    partition_nodes,
    pod_of,
    profile,
    restart_controller,
    template,
    wait_cut,
    wait_offered,
)
from tests.flow.test_pods_and_claims import wait_refused
from tests.flow.told_scene import assert_told_alike
from tests.gpus import Placement

FIRST_DYNAMIC = "version: v1\nrules:\n  - when: gpu.index == 0\n    mig: dynamic\n"
LAYOUT = "version: v1\nrules:\n  - when: gpu.index == 0\n    mig:\n      layout: {layout}\n"


def test_seven_pods_share_a_gpu_a_bigger_one_waits_and_a_whole_gpu_is_the_next(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    with configured(driver, FIRST_DYNAMIC):
        wait_offered(driver, lambda devices: "mig" in map(kind, devices))
        template(cluster, namespace, "small", profile("1g.10gb"))
        template(cluster, namespace, "large", profile("3g.40gb"))
        template(cluster, namespace, "whole", request())
        seven = [f"small-{number}" for number in range(7)]
        for name in seven:
            cluster.api.create(pod_of(name, "small"), namespace)
        for name in seven:
            wait_running(cluster, namespace, name)
        assert cut(driver) == {0: [(start, 1) for start in range(7)]}
        caps = {tuple(partition_nodes(cluster, namespace, name)) for name in seven}
        assert len(caps) == 7, "each has an instance of its own"

        cluster.api.create(pod_of("large", "large"), namespace)
        assert "cannot allocate all claims" in wait_refused(cluster, namespace, "large")
        start(cluster, namespace, pod_of("whole", "whole"))
        (taken,) = allocated(claim_of(cluster, namespace, "whole"))
        assert taken == "gpu-0000-43-00-0", "the next on the bus"

        end(cluster, namespace, *seven)
        wait_running(cluster, namespace, "large")
        wait_cut(driver, {0: [(4, 4)]})
        end(cluster, namespace, "large", "whole")
        wait_cut(driver, {})


def test_partitions_of_an_admin_are_noticed_handed_out_and_left_alone(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    admin_cuts(driver, 2, 9, Placement(4, 4))
    try:
        devices = wait_offered(driver, lambda listed: any(kind(one) == "mig" for one in listed))
        (found,) = [one for one in devices if kind(one) == "mig"]
        assert found["attributes"]["profile"] == {"string": "3g.40gb"}
        assert found["attributes"]["uuid"]["string"].startswith("MIG-")
        assert [kind(one) for one in devices].count("gpu") == 7, "the whole GPU is hidden"
        make_template(cluster, namespace, request(device_class="mig.nvidia.com"))
        start(cluster, namespace, gpu_pod("train"))
        assert len(partition_nodes(cluster, namespace, "train")) == 3
        assert_told_alike(driver, namespace, "train", "PartitionReady")
        claim = claim_of(cluster, namespace, "train")
        end(cluster, namespace, "train")
        wait_released(driver, claim["metadata"]["uid"])
        assert cut(driver) == {2: [(4, 4)]}
    finally:
        admin_clears(driver, 2)
        restart_controller(driver)  # which looks at once
    wait_offered(driver, lambda listed: [kind(one) for one in listed] == ["gpu"] * 8)


def test_a_changed_layout_waits_for_the_claims_of_the_old_one(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster

    def profiles(listed: list[Object]) -> list[str]:
        return sorted(one["attributes"]["profile"]["string"] for one in listed if kind(one) == "mig")

    with configured(driver, LAYOUT.format(layout="all-1g")):
        wait_offered(driver, lambda listed: profiles(listed) == ["1g.10gb"] * 7)
        assert not any("consumesCounters" in one for one in offered(driver))
        template(cluster, namespace, "small", profile("1g.10gb"))
        template(cluster, namespace, "large", profile("3g.40gb"))
        start(cluster, namespace, pod_of("small", "small"))

        (driver.folder / RULES).write_text(LAYOUT.format(layout="[3g, 3g]"))
        # The partition that is held stays, and so does the taint of the new one in its place.
        wait_offered(
            driver, lambda listed: sorted(map(kind, listed)) == ["gpu"] * 7 + ["mig"] + ["mig tainted"] * 2
        )
        start(cluster, namespace, pod_of("beside", "large"))
        cluster.api.create(pod_of("large", "large"), namespace)
        wait_refused(cluster, namespace, "large")
        assert cluster.api.get(paths.pod("small", namespace))["status"]["phase"] == "Running"

        end(cluster, namespace, "small")
        wait_running(cluster, namespace, "large", 120)
        wait_offered(driver, lambda listed: profiles(listed) == ["3g.40gb"] * 2)
        assert [size for places in cut(driver).values() for _, size in places] == [4, 4]
        end(cluster, namespace, "large", "beside")
        wait_cut(driver, {})
