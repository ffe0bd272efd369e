"""Cases of who has to go, each for one rule; the name says who goes."""

from __future__ import annotations

from collections.abc import Sequence

from tools.conformance.allocation import objects as api
from tools.conformance.allocation.objects import Json
from tools.conformance.area import Case
from tools.conformance.victims.random_cases import budget, pod, used_by, victims_case

_GPUS = [api.published(api.devices(3))]
_NUMA = [api.published([api.device(f"gpu-{n}", attributes=api.attributes(numa=n // 2)) for n in range(4)])]
_SHARED = [
    api.published([api.device("gpu-0", allowMultipleAllocations=True, capacity={"memory": {"value": "10"}})])
]
_MEMORY = {"memory": {"value": "6", "requestPolicy": {"default": "3"}}}
_MIXED = [
    api.published(
        [
            api.device("gpu-0", attributes=api.attributes(numa=0), capacity=_MEMORY),
            api.device("gpu-1", attributes=api.attributes(numa=1), allowMultipleAllocations=True),
            api.device("gpu-2", attributes=api.attributes(numa=1)),
            api.device("gpu-3", attributes=api.attributes(numa=0), capacity={"memory": {"value": "10"}}),
        ]
    )
]
_ONE = "device.attributes['gpu.example.com'].numa == 1"
_WHOLE = "device.attributes['gpu.example.com'].?whole.orValue(false)"


def _on_gpus(*pods: Json, first: int = 0) -> list[Json]:
    """Each pod holds one GPU."""
    return [used_by(api.held(f"gpu-{n}", name=f"claim-{n}"), one) for n, one in enumerate(pods, first)]


def _share(amount: str, one: Json) -> Json:
    name = one["metadata"]["name"]
    holder = api.held("gpu-0", name=f"share-{name}", shareID=name, consumedCapacity={"memory": amount})
    return used_by(holder, one)


def _case(
    name: str,
    pods: Sequence[Json],
    claims: Sequence[Json],
    *wanted: Json,
    slices: Sequence[Json] = _GPUS,
    budgets: Sequence[Json] = (),
) -> Case:
    return victims_case(
        name, slices, [api.device_class()], claims, pods, budgets, wanted or (api.claim(api.exactly()),)
    )


def _partitions() -> tuple[list[Json], list[Json], list[Json]]:
    """A GPU of 10 GB that two partitions of 5 GB fill: slices, pods, claims."""
    listed = [
        api.device(
            "whole",
            consumesCounters=[api.consumes("set-0", memory="10")],
            attributes=api.attributes(whole=True),
        ),
        *(api.device(f"half-{n}", consumesCounters=[api.consumes("set-0", memory="5")]) for n in range(2)),
    ]
    sets = [{"name": "set-0", "counters": api.counters(memory="10")}]
    slices = [
        api.published(listed, name="a", count=2),
        api.published(None, name="b", count=2, sharedCounters=sets),
    ]
    pods = [pod("a", 1), pod("b", 2)]
    return (
        slices,
        pods,
        [used_by(api.held(f"half-{n}", name=f"claim-{n}"), one) for n, one in enumerate(pods)],
    )


def _written() -> list[Case]:
    three = [pod("a", 3), pod("b", 1), pod("c", 2)]
    equal = [pod("a", start_day=1), pod("b", start_day=9), pod("c", start_day=5)]
    two = api.claim(api.exactly(count=2))
    numa = {"requests": [], "matchAttribute": "gpu.example.com/numa"}
    four = [pod("a", 1), pod("b", 9), pod("c", 5), pod("d", 6)]
    sharing = [pod("a", 1), pod("b", 2), pod("c", 3)]
    guarded = [pod("a", 1, app="kept"), pod("b", 5), pod("c", 6)]
    twice = [*_on_gpus(three[0]), used_by(api.held("gpu-1", "gpu-2", name="both"), three[1], three[2])]
    halves, users, held = _partitions()
    important = [pod("a", 2000), pod("b", 1000), pod("c", 1000)]
    return [
        _case("the lowest priority goes", three, _on_gpus(*three)),
        _case("of equal priorities the last that started goes", equal, _on_gpus(*equal)),
        _case("nobody goes while a GPU is free", three[:2], _on_gpus(*three[:2])),
        _case("nobody of the same or a higher priority goes", important, _on_gpus(*important)),
        _case(
            "two claims, two go", three, _on_gpus(*three), api.claim(api.exactly()), api.claim(api.exactly())
        ),
        _case(
            "two go of one NUMA node",
            four,
            _on_gpus(*four),
            {**two, "spec": _constrained(two, numa)},
            slices=_NUMA,
        ),
        _case("users of a claim go together", three, twice),
        _case(
            "a pod that a budget protects goes last", guarded, _on_gpus(*guarded), budgets=[budget("kept", 0)]
        ),
        _case("a claim without a known user stays", three[1:], _on_gpus(*three)),
        _case("the holder of a partition goes", users, held, slices=halves),
        _case("both go for the whole GPU", users, held, api.claim(api.exactly("r0", _WHOLE)), slices=halves),
        _case(
            "the shares go that are just enough",
            sharing,
            [_share("2", sharing[0]), _share("3", sharing[1]), _share("5", sharing[2])],
            api.claim(api.exactly(capacity={"requests": {"memory": "4"}})),
            slices=_SHARED,
        ),
        _fails_without_one(),
    ]


def _fails_without_one() -> Case:
    """While only one of the pods has gone, the allocator fails: a constraint excludes one of all devices."""
    pods = [pod("a", 1), pod("b", 1)]
    two = api.exactly("r0", _ONE, count=2)
    large = api.exactly("r1", capacity={"requests": {"memory": "5"}})
    every = api.first_available("r0", api.wanted(allocationMode="All"), api.wanted())
    constraint = {"requests": [], "matchAttribute": "gpu.example.com/numa"}
    return _case(
        "sets for which the allocator fails are passed over",
        pods,
        [_share("3", pods[0]), *_on_gpus(pods[1], first=1)],
        api.claim(two, large, name="first"),
        api.claim(every, name="second", constraints=[constraint]),
        slices=_MIXED,
    )


def _constrained(claim: Json, constraint: Json) -> Json:
    return {"devices": {**claim["spec"]["devices"], "constraints": [constraint]}}


CASES = tuple(_written())
