"""Written allocation cases for shared counters, and for configuration and node selectors of allocations."""

from __future__ import annotations

from typing import Any

from tools.conformance.allocation import objects as api
from tools.conformance.allocation.objects import Json, case, claim, consumes, device, exactly, held, published

_SETS = [{"name": "set-0", "counters": api.counters(memory="10", cores="4")}]


def _partitions(name: str, *memory: str, sets: list[Json] | None = None, **fields: Any) -> Json:
    listed = [
        device(f"part-{index}", consumesCounters=[consumes("set-0", memory=value)])
        for index, value in enumerate(memory)
    ]
    slices = [
        published(name="counters", count=2, sharedCounters=_SETS if sets is None else sets),
        published(listed, name="devices", count=2),
    ]
    asked = fields.pop("asked", exactly())
    return case(name, slices=slices, claims=fields.pop("claims", [claim(asked)]), **fields)


COUNTERS = (
    _partitions("a partition fits", "10"),
    _partitions("a partition that is too large", "11"),
    _partitions("a smaller partition is found", "11", "5"),
    _partitions("two partitions fit", "5", "5", asked=exactly(count=2)),
    _partitions("two partitions do not fit", "5", "6", asked=exactly(count=2)),
    _partitions("another pair fits", "6", "5", "5", asked=exactly(count=2)),
    _partitions("a partition in use takes its counters", "5", "6", allocated=[held("part-0")]),
    _partitions("a partition in use leaves the rest", "5", "5", allocated=[held("part-0")]),
    _partitions("a partition in use that is gone takes nothing", "10", allocated=[held("part-9")]),
    _partitions(
        "admin access does not hold counters", "10", "10", allocated=[held("part-0", adminAccess=True)]
    ),
    _partitions(
        "admin access needs free counters",
        "10",
        "10",
        asked=exactly(adminAccess=True),
        allocated=[held("part-1")],
    ),
    _partitions("overdrawn counters block", "8", "8", "0", allocated=[held("part-0", "part-1")]),
    _partitions("over two claims", "5", "6", claims=[claim(exactly()), claim(exactly(), name="b")]),
    _partitions("fractions are exact", "3.3", "3.3", "3.4", asked=exactly(count=3)),
    _partitions("fractions add up to too much", "3.3", "3.4", "3.4", asked=exactly(count=3)),
    _partitions(
        "units are understood",
        "5Gi",
        "5368709120",
        asked=exactly(count=2),
        sets=[{"name": "set-0", "counters": api.counters(memory="10Gi")}],
    ),
    _partitions("all partitions do not fit", "6", "5", asked=exactly(allocationMode="All")),
    case(
        "an overdrawn set blocks devices of other sets",
        slices=[
            published(
                name="c",
                count=2,
                sharedCounters=[*_SETS, {"name": "set-1", "counters": api.counters(memory="1")}],
            ),
            published(
                [
                    device("a", consumesCounters=[consumes("set-0", memory="8")]),
                    device("b", consumesCounters=[consumes("set-0", memory="8")]),
                    device("c", consumesCounters=[consumes("set-1", memory="1")]),
                ],
                name="d",
                count=2,
            ),
        ],
        allocated=[held("a", "b")],
    ),
    case(
        "a device of two sets needs both",
        slices=[
            published(
                name="c",
                count=2,
                sharedCounters=[*_SETS, {"name": "set-1", "counters": api.counters(memory="1")}],
            ),
            published(
                [
                    device(
                        "a", consumesCounters=[consumes("set-0", memory="8"), consumes("set-1", memory="2")]
                    ),
                    device(
                        "b", consumesCounters=[consumes("set-0", cores="4"), consumes("set-1", memory="1")]
                    ),
                ],
                name="d",
                count=2,
            ),
        ],
    ),
    case(
        "devices in use on other nodes take the pool's counters",
        slices=[
            published(name="c", count=3, sharedCounters=_SETS),
            published([device("a", consumesCounters=[consumes("set-0", memory="6")])], name="d", count=3),
            published(
                [device("b", consumesCounters=[consumes("set-0", memory="6")])],
                name="e",
                count=3,
                nodeName="n",
            ),
        ],
        allocated=[held("b")],
    ),
    case(
        "pools of the same name of two drivers have counters of their own",
        slices=[
            one
            for driver in ("a.example.com", "b.example.com")
            for one in (
                published(name=f"{driver}-c", driver=driver, count=2, sharedCounters=_SETS),
                published(
                    [device("p", consumesCounters=[consumes("set-0", memory="8")])],
                    name=f"{driver}-d",
                    driver=driver,
                    count=2,
                ),
            )
        ],
        claims=[claim(exactly(count=2))],
    ),
)


def _opaque(number: int, *requests: str) -> Json:
    entry: Json = {"opaque": {"driver": "gpu.example.com", "parameters": {"n": number}}}
    return entry | ({"requests": list(requests)} if requests else {})


_CLASSES = [
    api.device_class("gpu", config=[_opaque(1), _opaque(2)]),
    api.device_class("other", config=[_opaque(3)]),
]


def _configured(
    name: str, *requests: Json, config: tuple[Json, ...] = (), classes: list[Json] | None = None
) -> Json:
    return case(
        name,
        slices=[published(api.devices(6))],
        classes=_CLASSES if classes is None else classes,
        claims=[claim(*requests, config=list(config))],
    )


_PLAIN = [api.device_class()]
_TWO = api.first_available("r0", api.wanted(count=9), api.wanted(deviceClassName="other"))
_ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
_ZONE_AGAIN = {"key": "zone", "operator": "In", "values": ["b", "a"]}
_RANK = {"key": "rank", "operator": "Exists"}


def _term(*expressions: Json) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}


RESULTS = (
    _configured("a class's configuration", exactly()),
    _configured("a class's configuration comes once for two requests", exactly(), exactly("r1")),
    _configured("classes of two requests", exactly(), exactly("r1", deviceClassName="other")),
    _configured(
        "classes of three requests", exactly(), exactly("r1", deviceClassName="other"), exactly("r2")
    ),
    _configured("the class of the alternative that was taken", _TWO, exactly("r1")),
    _configured("a class of a request for no devices", exactly(count=0)),
    _configured("a claim's configuration", exactly(), config=(_opaque(7),), classes=_PLAIN),
    _configured(
        "a claim's configuration for one request", exactly(), exactly("r1"), config=(_opaque(7, "r1"),)
    ),
    _configured(
        "a claim's configuration for all by name", exactly(), exactly("r1"), config=(_opaque(7, "r1", "r0"),)
    ),
    _configured("a claim's configuration for an unknown request", exactly(), config=(_opaque(7, "r9"),)),
    _configured(
        "a configuration for a request and an unknown one",
        exactly(),
        exactly("r1"),
        config=(_opaque(7, "r0", "r9"),),
    ),
    _configured(
        "a configuration for the alternative that was taken",
        _TWO,
        exactly("r1"),
        config=(_opaque(7, "r0/s1"),),
    ),
    _configured("a configuration for an alternative that was not taken", _TWO, config=(_opaque(7, "r0/s0"),)),
    _configured("a configuration for all alternatives", _TWO, config=(_opaque(7, "r0"),)),
    _configured(
        "configurations keep their order", exactly(), config=(_opaque(8), _opaque(7, "r0"), _opaque(9))
    ),
    _configured("a configuration of an unknown kind", exactly(), config=({"requests": ["r0"]},)),
    _configured("a configuration in a claim without requests", config=(_opaque(7), _opaque(8, "r0"))),
    case("no node is named for devices of all nodes", slices=[published(api.devices(1), allNodes=True)]),
    case(
        "a node is named for a device that binds to it",
        slices=[published([device("a", bindsToNode=True)], allNodes=True)],
    ),
    case(
        "bindsToNode false names no node", slices=[published([device("a", bindsToNode=False)], allNodes=True)]
    ),
    case("a selector is copied", slices=[published(api.devices(1), nodeSelector=_term(_ZONE, _RANK))]),
    case(
        "selectors of two devices are merged",
        slices=[
            published([device("a")], name="a", pool="a", nodeSelector=_term(_ZONE)),
            published([device("b")], name="b", pool="b", nodeSelector=_term(_ZONE_AGAIN, _RANK)),
        ],
        claims=[claim(exactly(count=2))],
    ),
    case(
        "one device of the node is enough to name it",
        slices=[
            published([device("a")], name="a", pool="a", nodeSelector=_term(_ZONE)),
            published([device("b")], name="b", pool="b"),
        ],
        claims=[claim(exactly(count=2))],
    ),
    case(
        "each claim has a node selector of its own",
        slices=[
            published([device("a")], name="a", pool="a", allNodes=True),
            published([device("b")], name="b", pool="b"),
        ],
        claims=[claim(exactly()), claim(exactly(), name="b")],
    ),
    case(
        "a device's own node is named",
        slices=[published([device("a", nodeName=api.NODE)], perDeviceNodeSelection=True)],
    ),
    case(
        "a device's own selector is copied",
        slices=[published([device("a", nodeSelector=_term(_ZONE))], perDeviceNodeSelection=True)],
    ),
    case(
        "a device of all nodes among others",
        slices=[
            published(
                [device("a", allNodes=True), device("b", nodeName=api.NODE)], perDeviceNodeSelection=True
            )
        ],
    ),
)

CASES = (*COUNTERS, *RESULTS)
