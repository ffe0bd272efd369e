"""Written allocation cases for consumable capacity: shares, and how policies change requested amounts."""

from __future__ import annotations

from typing import Any

from tools.conformance.allocation import objects as api
from tools.conformance.allocation.objects import Json, case, claim, consumes, device, exactly, held, published

_SETS = [{"name": "set-0", "counters": api.counters(memory="10", cores="4")}]
_SHARE = "00000000-0000-0000-0000-000000000001"


def _shared(name: str, *asked: Any, value: str = "10", policy: Json | None = None, **fields: Any) -> Json:
    capacity: Json = {"value": value} | ({} if policy is None else {"requestPolicy": policy})
    one = device(
        "gpu-0",
        capacity={"memory": capacity},
        **{"allowMultipleAllocations": True} | fields.pop("device", {}),
    )
    requests = [
        exactly(f"r{index}", **({} if memory is None else {"capacity": {"requests": {"memory": memory}}}))
        for index, memory in enumerate(asked)
    ]
    listed = [one, *fields.pop("others", [])]
    return case(name, slices=[published(listed)], claims=fields.pop("claims", [claim(*requests)]), **fields)


def _share(memory: str | None, device: str = "gpu-0") -> Json:
    fields: Json = {} if memory is None else {"consumedCapacity": {"memory": memory}}
    return held(device, shareID=_SHARE, **fields)


_ONLY = {"allowMultipleAllocations": False}
_STEPS = {"default": "2", "validRange": {"min": "2", "max": "8", "step": "2"}}
_VALUES = {"default": "4", "validValues": ["2", "4", "8"]}

CAPACITY = (
    _shared("a share", "4"),
    _shared("what is not asked for is all", None),
    _shared("two shares", "4", "6"),
    _shared("two shares that are too much", "4", "7"),
    case(
        "two shares that are too much of a capacity with the driver's domain",
        slices=[
            published(
                [
                    device(
                        "gpu-0",
                        capacity={f"{api.DRIVER}/memory": {"value": "10"}},
                        allowMultipleAllocations=True,
                    )
                ]
            )
        ],
        claims=[
            claim(
                exactly(capacity={"requests": {f"{api.DRIVER}/memory": "4"}}),
                exactly("r1", capacity={"requests": {f"{api.DRIVER}/memory": "7"}}),
            )
        ],
    ),
    _shared(
        "one request takes a device once",
        claims=[claim(exactly(count=2, capacity={"requests": {"memory": "1"}}))],
    ),
    _shared("more than there is", "11"),
    _shared("a share beside others", "4", allocated=[_share("6")]),
    _shared("a share that others leave no room for", "5", allocated=[_share("6")]),
    _shared("a share without capacity", "10", allocated=[_share(None)]),
    _shared("a device held as a whole is not shared", "1", allocated=[held("gpu-0")]),
    _shared("an exclusive device that has enough", "4", device=_ONLY),
    _shared("an exclusive device that has too little", "40", device=_ONLY),
    _shared("an exclusive device is not shared", "4", "4", device=_ONLY),
    _shared(
        "an unknown capacity passes a device over",
        claims=[claim(exactly(capacity={"requests": {"cores": "1"}}))],
    ),
    _shared(
        "a name with the driver's domain is another",
        claims=[claim(exactly(capacity={"requests": {"gpu.example.com/memory": "1"}}))],
    ),
    _shared("the default", None, policy={"default": "3"}),
    _shared("a default that is too much", None, policy={"default": "30"}),
    _shared("rounded up to the minimum", "1", policy=_STEPS),
    _shared("rounded up to a step", "3", policy=_STEPS),
    _shared("on a step", "4", policy=_STEPS),
    _shared("beyond the maximum", "9", policy=_STEPS),
    _shared(
        "rounded up beyond the maximum",
        "7",
        policy={"default": "2", "validRange": {"min": "2", "max": "7", "step": "2"}},
    ),
    _shared("a range without steps", "3500m", policy={"default": "2", "validRange": {"min": "2"}}),
    _shared(
        "steps in the format of the step",
        "3000",
        value="10Mi",
        policy={"default": "1Ki", "validRange": {"min": "1Ki", "step": "1Ki"}},
    ),
    _shared(
        "decimal steps",
        "1500",
        value="10k",
        policy={"default": "1k", "validRange": {"min": "1k", "step": "1k"}},
    ),
    _shared(
        "exponent steps",
        "1500",
        value="10k",
        policy={"default": "1e3", "validRange": {"min": "1e3", "step": "1e3"}},
    ),
    _shared(
        "fractions are rounded up to units",
        "2500m",
        policy={"default": "1", "validRange": {"min": "1", "step": "1"}},
    ),
    _shared(
        "a fractional minimum is rounded up",
        "1800m",
        policy={"default": "1500m", "validRange": {"min": "1500m", "step": "1"}},
    ),
    _shared(
        "a default that its own policy forbids",
        None,
        policy={"default": "3", "validRange": {"min": "2", "step": "2"}},
    ),
    _shared("the default asked for in the same words", "3", policy={"default": "3", "validValues": ["2"]}),
    _shared("the default asked for in other words", "3.0", policy={"default": "3", "validValues": ["2"]}),
    _shared(
        "the default asked for with another unit", "3000m", policy={"default": "3", "validValues": ["2"]}
    ),
    _shared(
        "the default asked for as a multiple of another unit",
        "1024Mi",
        value="8Gi",
        policy={"default": "1Gi", "validValues": ["2"]},
    ),
    _shared(
        "the default asked for in thousandths",
        "1000000m",
        value="10k",
        policy={"default": "1000", "validValues": ["2"]},
    ),
    _shared(
        "the default compared with a minimum of arbitrary precision",
        "600",
        value="10k",
        policy={"default": "600", "validRange": {"min": "0.5Ki", "max": "550"}},
    ),
    _shared(
        "the default compared with a value of arbitrary precision",
        "600",
        value="10k",
        policy={"default": "600", "validValues": ["0.5Ki"]},
    ),
    _shared("too much to be rounded, in few digits", "1e19", policy=_STEPS),
    _shared(
        "a default held with arbitrary precision",
        None,
        value="10Gi",
        policy={"default": "1.5Gi", "validValues": ["1Gi"]},
    ),
    _shared("a valid value", "4", policy=_VALUES),
    _shared("rounded up to a valid value", "5", policy=_VALUES),
    _shared("beyond all valid values", "9", policy=_VALUES),
    _shared("a valid value in other words", "4000m", policy=_VALUES),
    _shared("no valid values", "5", policy={"default": "4", "validValues": []}),
    _shared("a policy of nothing", "5", policy={}),
    _shared("a range without a minimum", "5", policy={"validRange": {"max": "6"}}),
    _shared("a negative request", "-1"),
    _shared("a negative request of an exclusive device", "-1", device=_ONLY),
    _shared("a negative capacity", None, value="-1"),
    _shared("too much to be rounded", "9999999999999999999", policy=_STEPS),
    _shared(
        "rounded up past the largest",
        "9223372036854775807",
        policy={"default": "2", "validRange": {"min": "2", "step": "4"}},
    ),
    _shared("too much without a policy", "9999999999999999999"),
    _shared(
        "too much is not judged where the name is unknown",
        claims=[claim(exactly(capacity={"requests": {"memory": "-1", "cores": "1"}}))],
    ),
    _shared("a number that is not a text", 4),
    _shared("quantities keep their form", "1024Mi", value="8Gi"),
    _shared("quantities are written canonically", "4096Mi", value="8Gi"),
    _shared(
        "all devices with capacity",
        claims=[claim(exactly(allocationMode="All", capacity={"requests": {"memory": "4"}}))],
        others=[device("gpu-1")],
    ),
    _shared(
        "all devices where one is full",
        claims=[claim(exactly(allocationMode="All", capacity={"requests": {"memory": "4"}}))],
        allocated=[_share("8")],
    ),
    _shared(
        "all devices with a negative request",
        claims=[claim(exactly(allocationMode="All", capacity={"requests": {"memory": "-4"}}))],
    ),
    _shared(
        "admin access to a shared device", claims=[claim(exactly(adminAccess=True))], allocated=[_share("4")]
    ),
    _shared(
        "admin access to a shared device that has room",
        claims=[
            claim(
                exactly(adminAccess=True, capacity={"requests": {"memory": "4"}}),
                exactly("r1", capacity={"requests": {"memory": "4"}}),
            )
        ],
    ),
    _shared(
        "a full device is passed over",
        "4",
        allocated=[_share("8")],
        others=[device("gpu-1", capacity={"memory": {"value": "5"}})],
    ),
    _shared(
        "an alternative that asks for less",
        claims=[
            claim(
                api.first_available(
                    "r0",
                    api.wanted(capacity={"requests": {"memory": "20"}}),
                    api.wanted(capacity={"requests": {"memory": "2"}}),
                )
            )
        ],
    ),
    _shared(
        "a share is given up and taken otherwise",
        "8",
        "8",
        others=[device("gpu-1", allowMultipleAllocations=True, capacity={"memory": {"value": "9"}})],
    ),
    _shared(
        "shares for two claims",
        claims=[claim(exactly(capacity={"requests": {"memory": "5"}}), name=name) for name in "abc"],
    ),
    case(
        "a shared device without capacity",
        slices=[published([device("gpu-0", allowMultipleAllocations=True)])],
        claims=[claim(exactly(), exactly("r1"))],
    ),
    case(
        "two capacities, one is short",
        slices=[
            published(
                [
                    device(
                        "a",
                        allowMultipleAllocations=True,
                        capacity={"memory": {"value": "8"}, "cores": {"value": "2"}},
                    )
                ]
            )
        ],
        claims=[
            claim(
                *(
                    exactly(f"r{index}", capacity={"requests": {"memory": "1", "cores": "1"}})
                    for index in range(3)
                )
            )
        ],
    ),
    case(
        "a shared device takes its counters once",
        slices=[
            published(name="c", count=2, sharedCounters=_SETS),
            published(
                [
                    device(
                        "a",
                        allowMultipleAllocations=True,
                        capacity={"memory": {"value": "8"}},
                        consumesCounters=[consumes("set-0", memory="6")],
                    )
                ],
                name="d",
                count=2,
            ),
        ],
        claims=[claim(*(exactly(f"r{index}", capacity={"requests": {"memory": "4"}}) for index in range(2)))],
    ),
    case(
        "a shared device in use has taken its counters",
        slices=[
            published(name="c", count=2, sharedCounters=_SETS),
            published(
                [
                    device(
                        "a", allowMultipleAllocations=True, consumesCounters=[consumes("set-0", memory="6")]
                    )
                ],
                name="d",
                count=2,
            ),
        ],
        allocated=[_share(None, "a")],
    ),
)

_FOUR: Json = {"capacity": {"requests": {"memory": "4"}}}

ALIKE = (
    case(
        "a device that is shared and one that is not",
        slices=[
            published(
                [
                    device("a", capacity={"memory": {"value": "10"}}),
                    device("b", capacity={"memory": {"value": "10"}}, allowMultipleAllocations=True),
                ]
            )
        ],
        claims=[claim(exactly(**_FOUR), exactly("r1", count=2, **_FOUR))],
    ),
)

CASES = (*CAPACITY, *ALIKE)
