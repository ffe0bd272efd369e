"""A gang of 256 pods on 16 nodes: each node reads the gang's claim once, and none writes into it."""

from tests import fork_server
from tests.clusters import DriverNode, EmbeddedCluster, Object, paths, plan_node, wait_for_list
from tests.eventually import eventually
from tests.flow.claims import make_claim, request
from tests.flow.gangs import gang_pod, offer_channels, start_plugin

NODES, PODS = 16, 256
PLUGIN = "system:serviceaccount:gpu-dra:gpu-dra-kubeletplugin"


def member(number: int) -> Object:
    """A pod with the gang's channel alone: the trays have fewer GPUs than pods."""
    pod = gang_pod(f"gang-{number}", "gang")
    del pod["spec"]["resourceClaims"][0], pod["spec"]["containers"][0]["resources"]["claims"][0]
    return pod


def all_run(pods: list[Object]) -> bool:
    return [one["status"].get("phase") for one in pods] == ["Running"] * PODS


def test_256_pods_of_a_gang_cost_each_node_one_read_of_the_claim_and_no_write() -> None:
    with EmbeddedCluster(NODES, start=fork_server.start) as cluster:
        # With the intervals of users: brisk ones read every held claim again and again.
        drivers = [DriverNode.install(cluster, index, "gb200-tray") for index in range(NODES)]
        for driver in drivers:
            start_plugin(driver)
            for item in plan_node("gb200-tray", driver.node.name, None).slices:
                cluster.api.create(item)
        offer_channels(cluster, 64)
        make_claim(cluster, "default", "gang", request("channel", "nvlink-channel"))
        asked = cluster.api_server.requests
        before = len(asked)
        for number in range(PODS):
            cluster.api.create(member(number), "default")

        wait_for_list(cluster.api, paths.pod(namespace="default"), all_run, 300)
        of_plugins = [one for one in list(asked)[before:] if one.user.name == PLUGIN]
        calls = [(one.verb, one.name) for one in of_plugins if one.resource == "resourceclaims"]
        assert calls == [("get", "gang")] * NODES
        assert {one.verb for one in of_plugins} <= {"get", "watch", "list"}
        assert [len([*driver.node.cdi_dir.glob("*channels*")]) for driver in drivers] == [1] * NODES

        cluster.api.create(member(PODS), "default")

        def refused() -> str:
            pod = cluster.api.get(paths.pod(f"gang-{PODS}", "default"))
            return " ".join(one.get("message", "") for one in pod["status"].get("conditions") or ())

        eventually("the 257th pod is refused", refused, lambda text: "256" in text)
