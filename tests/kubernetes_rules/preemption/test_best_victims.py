"""A pod that waits for devices gets the node where the least important have to go, or a reason why not."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubernetes_rules.preemption.cluster import Asked, Cluster
from kubernetes_rules.preemption.units import Unit, can_be_evicted
from kubernetes_rules.preemption.victims import Choice, best_victims
from tests.clusters import Object
from tests.examples import examples
from tools.conformance.allocation import objects as api
from tools.conformance.victims.random_cases import budget, pod, used_by

_CLASS = api.device_class()


@dataclass(frozen=True)
class Lower:
    """Units of a lower priority may go."""

    priority: int = 100

    def __call__(self, unit: Unit) -> bool:
        return unit.priority < self.priority


def _node(name: str, cpu: str = "64", **spec: Any) -> Object:
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return {**api.node(name, zone="a"), "spec": spec, "status": {"allocatable": allocatable}}


def _slice(node: str, gpus: int = 2) -> Object:
    return api.published(api.devices(gpus), name=f"slice-{node}", pool=node, nodeName=node)


def _running(name: str, node: str, priority: int, cpu: str = "1", **metadata: Any) -> Object:
    one = pod(name, priority)
    one["metadata"] |= metadata
    one["spec"] |= {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    return one


def _pending(name: str = "urgent", cpu: str = "1", **spec: Any) -> Object:
    entries = [{"name": "gpu", "resourceClaimName": f"of-{name}"}]
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"priority": 100, "containers": containers, "resourceClaims": entries, **spec},
    }


@dataclass
class World:
    """Two nodes with two GPUs each, all held: by low-0, low-1 on node-a, and mid-0, mid-1 on node-b."""

    nodes: list[Object]
    pods: list[Object]
    claims: list[Object]
    slices: list[Object]
    budgets: Sequence[Object] = ()

    def cluster(self, *pending: Object, count: int = 1, before: Cluster | None = None) -> Cluster:
        """A snapshot with these pods that wait for GPUs; each has a claim for ``count``."""
        asking = [
            api.claim(api.exactly(count=count), name=f"of-{one['metadata']['name']}") for one in pending
        ]
        return Cluster(
            self.nodes,
            self.slices,
            [_CLASS],
            [*self.claims, *asking],
            [*self.pods, *pending],
            budgets=self.budgets,
            before=before,
        )

    def choice(self, one: Object | None = None, count: int = 1, may_go: Any = None) -> Choice:
        """What is decided for a pod."""
        one = one or _pending()
        cluster = self.cluster(one, count=count)
        return best_victims(cluster, _asked(cluster, one), may_go or Lower())


def _asked(cluster: Cluster, one: Object) -> Asked:
    asked = cluster.asked(one)
    assert not isinstance(asked, str), asked
    return asked


def _world() -> World:
    pods = [
        _running("low-0", "node-a", 1),
        _running("low-1", "node-a", 2),
        _running("mid-0", "node-b", 5),
        _running("mid-1", "node-b", 6),
    ]
    held = [
        api.held(f"gpu-{n % 2}", pool=one["spec"]["nodeName"], name=f"of-{n}") for n, one in enumerate(pods)
    ]
    claims = [used_by(device, one) for device, one in zip(held, pods, strict=True)]
    return World([_node("node-a"), _node("node-b")], pods, claims, [_slice("node-a"), _slice("node-b")])


@pytest.fixture
def world() -> World:
    return _world()


def test_the_node_with_the_cheapest_victims_is_chosen(world: World) -> None:
    found = world.choice()

    assert (found.kind, found.text) == ("victims", "it would fit on node-a if ns/low-0 ended")
    assert found.victims is not None
    assert [one["devices"]["results"][0]["device"] for one in found.victims.allocations] == ["gpu-0"]


def test_a_pod_of_a_group_is_no_victim(world: World) -> None:
    world.pods[0]["spec"]["schedulingGroup"] = {"podGroupName": "train"}

    assert world.choice(may_go=can_be_evicted).text == "it would fit on node-a if ns/low-1 ended"


def test_nobody_goes_while_a_node_has_room(world: World) -> None:
    world.claims.pop(2)

    assert world.choice().kind == "fits now"
    assert world.choice().text == "its devices are free on node-b"


def test_nobody_goes_if_pods_that_are_ending_make_room(world: World) -> None:
    world.pods[2]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    found = world.choice()

    assert found.kind == "waits"
    assert found.victims is not None
    assert (found.victims.node, found.victims.units) == ("node-b", ())


def test_what_no_node_has_is_never_there(world: World) -> None:
    assert world.choice(count=3).kind == "never"


def test_a_node_whose_victims_free_too_little_cpu_needs_more_of_them(world: World) -> None:
    world.nodes = [_node("node-a", cpu="4")]
    found = world.choice(_pending(cpu="4"))

    assert found.text == "it would fit on node-a if ns/low-0, ns/low-1 ended"


def test_nobody_goes_for_the_cpu_alone(world: World) -> None:
    world.nodes = [_node("node-a", cpu="2")]
    world.claims.pop(0)

    found = world.choice()

    assert (found.kind, found.text) == ("no victims", "its devices are free on node-a, but it lacks cpu")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"nodeSelector": {"zone": "b"}}, "lacks the label zone=b"),
        (
            {"nodeSelector": {"zone": "a"}, "containers": [{"resources": {"requests": {"cpu": "65"}}}]},
            "as much",
        ),
        ({"schedulerName": "volcano"}, "the scheduler volcano"),
        ({"schedulingGates": [{"name": "quota"}]}, "scheduling gates"),
        ({"schedulingGroup": {"podGroupName": "train"}}, "together with the pods of the group train"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]}, "a volume of a"),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "an ephemeral volume"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, "topology spread"),
        ({"containers": [{"ports": [{"hostPort": 80}]}]}, "host ports"),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "affinity to pods",
        ),
    ],
)
def test_a_pod_that_could_run_nowhere_or_cannot_be_judged_makes_nobody_go(
    world: World, spec: Object, reason: str
) -> None:
    found = world.choice(_pending(**spec))

    assert found.kind == ("never" if "nodeSelector" in spec else "unjudged")
    assert reason in found.text


def test_where_other_pods_keep_it_away_it_is_not_judged(world: World) -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "urgent"}}}
    own = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    world.pods[0]["spec"]["affinity"] = own
    one = _pending()

    assert world.choice(one).kind == "victims"
    one["metadata"]["labels"] = {"app": "urgent"}
    assert "anti-affinity of other pods" in world.choice(one).text


def test_the_scheduler_gives_up_a_pod_whose_selector_fails_so_nobody_goes(world: World) -> None:
    one = _pending()
    cluster = world.cluster(one)
    broken = api.claim(api.exactly("r0", "device.attributes['x'].y == 'z'"))

    assert best_victims(cluster, Asked(one, (broken,)), Lower()).kind == "unjudged"


def test_a_device_that_every_node_reaches_is_noticed_on_all_of_them_once_it_is_free(world: World) -> None:
    world.slices = [api.published(api.devices(1), pool="network", allNodes=True)]
    world.claims = [api.held("gpu-0", pool="network", name="unknown")]
    one = _pending()
    first = world.cluster(one)
    before = best_victims(first, _asked(first, one), Lower())
    world.claims = []
    second = world.cluster(one, before=first)

    assert (before.kind, best_victims(second, _asked(second, one), Lower()).kind) == (
        "no victims",
        "fits now",
    )


def _change(rng: Random, world: World) -> None:
    """Something happens in the cluster: objects are replaced, as a cache does it, never changed."""
    kind, number = rng.randrange(7), rng.randrange(4)
    if kind == 0:
        world.pods[number] = _running(f"p{number}", rng.choice(("node-a", "node-b")), rng.randrange(9))
    elif kind == 1:
        one = world.pods[number]
        world.pods[number] = {
            **one,
            "metadata": {**one["metadata"], "deletionTimestamp": "2026-01-02T00:00:00Z"},
        }
    elif kind == 2:
        world.claims = [one for one in world.claims if one["metadata"]["name"] != f"c{number}"]
    elif kind == 3:
        user = world.pods[rng.randrange(4)]
        device = api.held(f"gpu-{number % 2}", pool=f"node-{'ab'[number // 2]}", name=f"c{number}")
        world.claims = [*(one for one in world.claims if one["metadata"]["name"] != f"c{number}")]
        world.claims.append(used_by(device, user))
    elif kind == 4:
        world.nodes[number % 2] = _node(f"node-{'ab'[number % 2]}", cpu=rng.choice(("0", "64")))
    elif kind == 5:
        world.budgets = [budget(app, rng.randrange(2)) for app in "ab" if rng.random() < 0.5]
    else:
        ending = _running("ending", "node-a", 0, cpu="63", deletionTimestamp="2026-01-02T00:00:00Z")
        world.pods[4:] = [] if len(world.pods) > 4 else [ending]


@settings(deadline=None, max_examples=examples(150))
@given(st.integers(min_value=0, max_value=2**32))
def test_what_is_taken_from_the_snapshot_before_decides_as_a_new_one(seed: int) -> None:
    rng = Random(seed)  # noqa: S311 - no secret
    world, one, cluster = _world(), _pending(), None
    for _ in range(12):
        _change(rng, world)
        cluster, new = world.cluster(one, before=cluster), world.cluster(one)
        kept, fresh = (best_victims(known, _asked(known, one), Lower(8)) for known in (cluster, new))
        assert (kept.kind, kept.text, kept.victims and kept.victims.cost) == (
            fresh.kind,
            fresh.text,
            fresh.victims and fresh.victims.cost,
        )
