"""Pods that have to wait, each for one reason, on a node with devices of a made-up driver.

Each situation has a driver of its own, so that all can be there at once, on any cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.clusters import Object
from tests.flow.resource_situations import (
    extended_resource_by_the_thousand,
    extended_resource_in_use,
    extended_resource_unknown,
    init_container_uses_what_the_containers_have,
    quota_exceeded,
    quota_of_an_extended_resource,
    quota_of_an_implicit_resource,
    quota_of_the_class_behind_a_resource,
)
from tests.flow.scene import Scene, device


@dataclass(frozen=True, slots=True)
class Situation:
    """``build`` fills a scene whose pod ``waiting`` has to wait.

    ``kind`` is a finding's kind, or the gate at which devices fell; ``says`` is in its text. ``first`` are
    pods that must have been placed before the waiting one comes.
    """

    name: str
    build: Callable[[Scene], None]
    kind: str
    says: str
    first: tuple[str, ...] = ()
    judged: bool = True
    """Whether the scheduler looks at the pod at all; it does not before the pod's claims are there."""
    helps: str = ""
    """Is in what would help, according to one of the findings."""
    never: bool = False
    """Whether no node can ever serve the pod, so that nothing is said of claims that end."""


def class_missing(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.pod("waiting", scene.claim("mine", scene.exactly(device_class="no-such-class")))


def class_selects_nothing(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class("", 'device.driver == "other.example.com"')
    scene.pod("waiting", scene.claim("mine", scene.exactly()))


def request_selects_nothing(scene: Scene) -> None:
    scene.publish(device("a"), device("b"))
    scene.device_class()
    expression = (
        f'device.attributes["{scene.driver}"].model == "small" && '
        f'device.capacity["{scene.driver}"].memory.compareTo(quantity("80Gi")) >= 0'
    )
    scene.pod("waiting", scene.claim("mine", scene.exactly(selectors=[{"cel": {"expression": expression}}])))


def selector_fails(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class()
    expression = f'device.attributes["{scene.driver}"].colour == "red"'
    scene.pod("waiting", scene.claim("mine", scene.exactly(selectors=[{"cel": {"expression": expression}}])))


def all_in_use(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class()
    scene.holder("theirs")
    scene.pod("waiting", scene.claim("mine", scene.exactly()))


def too_few_free(scene: Scene) -> None:
    scene.publish(device("a"), device("b"), device("c"))
    scene.device_class()
    scene.holder("theirs")
    scene.pod("waiting", scene.claim("mine", scene.exactly(count=3)))


def more_than_the_node_has(scene: Scene) -> None:
    scene.publish(device("a"), device("b"))
    scene.device_class()
    scene.holder("theirs")
    scene.pod("waiting", scene.claim("mine", scene.exactly(count=3)))


def as_many_as_the_node_has(scene: Scene) -> None:
    scene.publish(device("a"), device("b"))
    scene.device_class()
    scene.holder("theirs")
    scene.pod("waiting", scene.claim("mine", scene.exactly(count=2)))


def tainted(scene: Scene) -> None:
    scene.publish(device("a", taints=[{"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}]))
    scene.device_class()
    scene.pod("waiting", scene.claim("mine", scene.exactly()))


def other_taint_tolerated(scene: Scene) -> None:
    scene.publish(device("a", taints=[{"key": "example.com/broken", "effect": "NoExecute"}]))
    scene.device_class()
    tolerations = [{"key": "example.com/broken", "operator": "Exists", "effect": "NoSchedule"}]
    scene.pod("waiting", scene.claim("mine", scene.exactly(tolerations=tolerations)))


def tainted_by_rule(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class()
    scene.add(
        "DeviceTaintRule",
        scene.namespace,
        {
            "deviceSelector": {"driver": scene.driver},
            "taint": {"key": "example.com/service", "effect": "NoSchedule"},
        },
    )
    scene.pod("waiting", scene.claim("mine", scene.exactly()))


def _partitioned(scene: Scene) -> None:
    def part(name: str, slices: int) -> Object:
        return device(
            name, consumesCounters=[{"counterSet": "gpu-0", "counters": {"slices": {"value": str(slices)}}}]
        )

    scene.publish(
        count=2, suffix="-0", sharedCounters=[{"name": "gpu-0", "counters": {"slices": {"value": "4"}}}]
    )
    scene.publish(part("half-0", 2), part("half-1", 2), part("whole", 4), count=2, suffix="-1")


def counters_used_up(scene: Scene) -> None:
    _partitioned(scene)
    scene.device_class()
    scene.device_class(f"{scene.namespace}-whole", f'device.driver == "{scene.driver}"')
    scene.holder("theirs")
    scene.pod("waiting", scene.claim("mine", scene.exactly(count=2)))


def capacity_too_large(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class()
    scene.pod("waiting", scene.claim("mine", scene.exactly(capacity={"requests": {"memory": "64Gi"}})))


def _shared(scene: Scene) -> None:
    policy = {"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi", "max": "30Gi"}}
    scene.publish(
        device(
            "a",
            allowMultipleAllocations=True,
            capacity={"memory": {"value": "40Gi", "requestPolicy": policy}},
        )
    )
    scene.device_class()


def shares_used_up(scene: Scene) -> None:
    _shared(scene)
    scene.holder("theirs", scene.exactly(capacity={"requests": {"memory": "30Gi"}}))
    scene.pod("waiting", scene.claim("mine", scene.exactly(capacity={"requests": {"memory": "20Gi"}})))


def share_beyond_policy(scene: Scene) -> None:
    _shared(scene)
    scene.pod("waiting", scene.claim("mine", scene.exactly(capacity={"requests": {"memory": "35Gi"}})))


def match_fails(scene: Scene) -> None:
    scene.publish(device("a"), device("b"))
    scene.device_class()
    constraint = {"matchAttribute": f"{scene.driver}/island"}
    scene.pod("waiting", scene.claim("mine", scene.exactly(count=2), constraints=[constraint]))


def distinct_fails(scene: Scene) -> None:
    scene.publish(device("a"), device("b"))
    scene.device_class()
    constraint = {"distinctAttribute": f"{scene.driver}/model"}
    scene.pod("waiting", scene.claim("mine", scene.exactly(count=2), constraints=[constraint]))


def pool_incomplete(scene: Scene) -> None:
    scene.publish(device("a"), count=2)
    scene.device_class()
    scene.pod("waiting", scene.claim("mine", scene.exactly()))


def pool_invalid(scene: Scene) -> None:
    scene.publish(device("a"), count=2, suffix="-0")
    scene.publish(device("a"), count=2, suffix="-1")
    scene.device_class()
    scene.pod("waiting", scene.claim("mine", scene.exactly()))


def all_mode_with_one_in_use(scene: Scene) -> None:
    scene.publish(device("a"), device("b"))
    scene.device_class()
    scene.holder("theirs")
    scene.pod("waiting", scene.claim("mine", scene.exactly(allocationMode="All")))


def nothing_published(scene: Scene) -> None:
    scene.device_class()
    scene.pod("waiting", scene.claim("mine", scene.exactly()))


def claim_missing(scene: Scene) -> None:
    scene.pod("waiting", "no-such-claim")


def template_missing(scene: Scene) -> None:
    scene.pod("waiting", template="no-such-template")


def node_selector_excludes(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class()
    scene.pod("waiting", scene.claim("mine", scene.exactly()), nodeSelector={"example.com/zone": "moon"})


def first_available_exhausted(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class()
    scene.holder("theirs")
    subs = [
        {"name": "two", "deviceClassName": scene.namespace, "count": 2},
        {"name": "one", "deviceClassName": scene.namespace},
    ]
    scene.pod("waiting", scene.claim("mine", {"name": "gpu", "firstAvailable": subs}))


def more_than_a_claim_may_have(scene: Scene) -> None:
    scene.publish(*(device(f"d{number}") for number in range(40)))
    scene.device_class()
    scene.pod("waiting", scene.claim("mine", scene.exactly(count=33)))


def two_claims_one_device(scene: Scene) -> None:
    scene.publish(device("a"))
    scene.device_class()
    scene.pod("waiting", scene.claim("first", scene.exactly()), scene.claim("second", scene.exactly()))


def devices_elsewhere(scene: Scene) -> None:
    where = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "example.com/zone", "operator": "In", "values": ["moon"]}]}
        ]
    }
    scene.publish(device("a"), pool="far", nodeSelector=where)
    scene.device_class()
    scene.pod("waiting", scene.claim("mine", scene.exactly()))


THEIRS = ("theirs-pod",)
SITUATIONS = (
    Situation("class missing", class_missing, "class-missing", "no-such-class"),
    Situation("class selects nothing", class_selects_nothing, "selector", "other.example.com"),
    Situation(
        "request selects nothing", request_selects_nothing, "selector", 'compareTo(quantity("80Gi")) >= 0'
    ),
    Situation("selector fails", selector_fails, "error", "colour"),
    Situation("all in use", all_in_use, "in-use", "theirs", THEIRS),
    Situation("too few free", too_few_free, "in-use", "theirs", THEIRS),
    Situation(
        "more than the node has",
        more_than_the_node_has,
        "never",
        "the most on one node is 2",
        THEIRS,
        helps="waiting does not help",
        never=True,
    ),
    Situation(
        "as many as the node has",
        as_many_as_the_node_has,
        "in-use",
        "theirs",
        THEIRS,
        helps="wait until claim",
    ),
    Situation("tainted", tainted, "taint", "example.com/broken=yes:NoSchedule"),
    Situation("another taint is tolerated", other_taint_tolerated, "taint", "example.com/broken:NoExecute"),
    Situation("tainted by a rule", tainted_by_rule, "taint", "example.com/service:NoSchedule"),
    Situation("counters used up", counters_used_up, "counters", "gpu-0 is needed, 2 of 4 is left", THEIRS),
    Situation(
        "capacity too large",
        capacity_too_large,
        "capacity",
        "64Gi of memory is needed, it has 40Gi",
        never=True,
    ),
    Situation("shares used up", shares_used_up, "capacity", "theirs", THEIRS, helps="wait until claim"),
    Situation(
        "shares left", shares_used_up, "capacity", "20Gi of memory is needed, 10Gi of 40Gi is left", THEIRS
    ),
    Situation(
        "share beyond the policy",
        share_beyond_policy,
        "capacity",
        "policy allows from 10Gi to 30Gi",
        never=True,
    ),
    Situation("match fails", match_fails, "constraint", "island", never=True),
    Situation("distinct fails", distinct_fails, "constraint", "model", never=True),
    Situation("pool incomplete", pool_incomplete, "pool", "1 of 2"),
    Situation("pool invalid", pool_invalid, "pool", "a"),
    Situation("all mode with one in use", all_mode_with_one_in_use, "in-use", "theirs", THEIRS),
    Situation("nothing published", nothing_published, "no-match", "selects no device"),
    Situation("claim missing", claim_missing, "claim-missing", "no-such-claim", judged=False),
    Situation("template missing", template_missing, "template-missing", "no-such-template", judged=False),
    Situation("quota exceeded", quota_exceeded, "quota", "exceeded quota: tenant", judged=False),
    Situation("node selector excludes the node", node_selector_excludes, "node", "example.com/zone=moon"),
    Situation("first available exhausted", first_available_exhausted, "in-use", "theirs", THEIRS),
    Situation("extended resource unknown", extended_resource_unknown, "extended-resource", "nothing"),
    Situation("extended resource in use", extended_resource_in_use, "in-use", "theirs", THEIRS),
    Situation(
        "init container uses what the containers have",
        init_container_uses_what_the_containers_have,
        "too-few",
        "2 free for request container-1-request-0, which wants 3 devices",
        THEIRS,
        helps="wait until claim",
    ),
    Situation(
        "extended resource by the thousand",
        extended_resource_by_the_thousand,
        "too-many",
        "asks for 1000 devices",
        never=True,
    ),
    Situation(
        "quota of an extended resource",
        quota_of_an_extended_resource,
        "quota",
        "exceeded quota: tenant",
        judged=False,
    ),
    Situation(
        "quota of an implicit resource", quota_of_an_implicit_resource, "quota", "exceeded quota: tenant"
    ),
    Situation(
        "quota of the class behind a resource",
        quota_of_the_class_behind_a_resource,
        "quota",
        "exceeded quota: tenant",
    ),
    Situation("more than a claim may have", more_than_a_claim_may_have, "too-many", "32", never=True),
    Situation("two claims, one device", two_claims_one_device, "together", "first", never=True),
    Situation("devices on another node", devices_elsewhere, "no-match", "selects no device"),
)
