"""Written allocation cases in which a device leads nowhere, and one that is almost like it does not."""

from __future__ import annotations

from tools.conformance.allocation.objects import (
    Json,
    attributes,
    case,
    claim,
    consumes,
    counters,
    device,
    devices,
    exactly,
    first_available,
    held,
    published,
    wanted,
)

_MODEL_A = "device.attributes['gpu.example.com'].model == 'A'"
_MODEL_X = "device.attributes['gpu.example.com'].model == 'X'"
_NUMA_0 = "device.attributes['gpu.example.com'].numa == 0"
_HAS_NUMA = "device.attributes['gpu.example.com'].numa >= 0"
_TAINT: Json = {"key": "sick", "effect": "NoSchedule"}


def _counted_pool(pool: str, memory: str) -> list[Json]:
    listed = [
        device(
            f"{pool}-{model}",
            attributes=attributes(model=model),
            consumesCounters=[consumes("set-0", memory="6")],
        )
        for model in ("A", "X")
    ]
    shared = [{"name": "set-0", "counters": counters(memory=memory)}]
    return [
        published(name=f"{pool}-counters", pool=pool, count=2, sharedCounters=shared),
        published(listed, name=f"{pool}-devices", pool=pool, count=2),
    ]


def _one_that_fails(count: int) -> list[Json]:
    """So many devices with the attribute, then one without: a selector that asks for it fails there."""
    listed = devices(count, attributes=attributes(numa=0))
    return [published([*listed, device("last")])]


_LARGE_OR_ONE = first_available("r0", wanted(_HAS_NUMA, count=32), wanted(_HAS_NUMA))

CASES = (
    case(
        "devices of two pools differ in the counters that are left",
        slices=[*_counted_pool("pool-a", "6"), *_counted_pool("pool-b", "12")],
        claims=[claim(exactly("r0", _MODEL_A), exactly("r1", _MODEL_X, count=2))],
    ),
    case(
        "devices differ in a taint that a later request does not tolerate",
        slices=[published([device("a"), device("b", taints=[_TAINT])])],
        claims=[claim(exactly(tolerations=[{"operator": "Exists"}]), exactly("r1"))],
    ),
    case(
        "devices differ in being held, which admin access does not mind",
        allocated=[held("gpu-1")],
        claims=[claim(exactly(adminAccess=True), exactly("r1"))],
    ),
    case(
        "devices differ in their place among all devices",
        slices=[
            published(
                [
                    device("a", attributes=attributes(numa=0)),
                    device("b", attributes=attributes(numa=1)),
                    device("c", attributes=attributes(numa=0)),
                ]
            )
        ],
        claims=[
            claim(
                exactly("r0", _NUMA_0),
                exactly("r1", allocationMode="All"),
                constraints=[{"matchAttribute": "gpu.example.com/numa", "requests": ["r1"]}],
            )
        ],
    ),
    case(
        "an alternative that leaves no place in the result is given up at once",
        slices=_one_that_fails(32),
        claims=[claim(_LARGE_OR_ONE, exactly("r1", _HAS_NUMA))],
    ),
    case(
        "an alternative after which no other has a place is given up at once",
        slices=_one_that_fails(32),
        claims=[claim(_LARGE_OR_ONE, first_available("r1", wanted(count=2), wanted()))],
    ),
    case(
        "an alternative without admin access cannot have it",
        allocated=[held("gpu-0")],
        claims=[claim(first_available("r0", wanted(adminAccess=True)))],
    ),
    case(
        "a device that fails comes after too few candidates",
        slices=_one_that_fails(3),
        claims=[claim(exactly("r0", _HAS_NUMA, count=5))],
    ),
)
