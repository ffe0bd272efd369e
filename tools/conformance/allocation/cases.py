"""Written allocation cases: what random cases do not come across."""

from __future__ import annotations

from typing import Any

from tools.conformance.allocation import objects as api
from tools.conformance.allocation.objects import (
    NODE,
    Json,
    case,
    claim,
    device,
    devices,
    exactly,
    first_available,
    held,
    published,
    wanted,
)

_MODEL = "device.attributes['gpu.example.com'].model == 'A'"
_HAS_NUMA = "device.attributes['gpu.example.com'].numa >= 0"
_SICK: Json = {"key": "sick", "value": "x", "effect": "NoSchedule"}
_EVERY = [claim(exactly(allocationMode="All"))]


def _asked(name: str, *requests: Json, constraints: list[Json] | None = None, **fields: Any) -> Json:
    return case(name, claims=[claim(*requests, constraints=constraints or [])], **fields)


def _tainted(name: str, *tolerations: Json) -> Json:
    listed = [device("gpu-0", taints=[_SICK]), device("gpu-1")]
    return _asked(name, exactly(tolerations=list(tolerations)), slices=[published(listed)])


def _placed(*numas: int) -> list[Json]:
    listed = [device(f"gpu-{n}", attributes=api.attributes(numa=numa)) for n, numa in enumerate(numas)]
    return [published(listed)]


_SAME, _APART = ({kind: "gpu.example.com/numa"} for kind in ("matchAttribute", "distinctAttribute"))
_NOTHING_KNOWN = [device(name, attributes={"numa": {}}) for name in "ab"]

_REQUESTS = (
    case(
        "devices differ in being held, which admin access does not mind",
        allocated=[held("gpu-1")],
        claims=[claim(exactly(adminAccess=True), exactly("r1"))],
    ),
    case(
        "an alternative after which no other has a place is given up at once",
        slices=[published([*devices(32, attributes=api.attributes(numa=0)), device("last")])],
        claims=[
            claim(
                first_available("r0", wanted(_HAS_NUMA, count=32), wanted(_HAS_NUMA)),
                first_available("r1", wanted(count=2), wanted()),
            )
        ],
    ),
    _asked("no devices", exactly(count=0)),
    case("no claims", claims=[]),
    _asked("a huge count", exactly(count=2**62)),
    _asked("32 devices", exactly(count=32), slices=[published(devices(33))]),
    _asked("an unknown mode", exactly(allocationMode="Some")),
    _asked("a class that does not exist", exactly(deviceClassName="missing")),
    _asked("no class", exactly(deviceClassName="")),
    _asked("a selector of an unknown kind", exactly(selectors=[{}])),
    _asked("derived attributes are off", exactly(derivedAttributes=[{"name": "a/b"}])),
    _asked("a selector that does not compile", exactly("r0", "1 +")),
    _asked("an error in an alternative ends it all", first_available("r0", wanted(_MODEL), wanted())),
    case("admin access holds nothing", allocated=[held("gpu-0", adminAccess=True)]),
    _tainted("seconds are copied", {"operator": "Exists", "tolerationSeconds": 0, "key": ""}),
    _tainted("one of several tolerations", {"key": "a"}, {"key": "sick", "value": "x"}),
    _asked("no domain", exactly(), slices=_placed(0), constraints=[{"matchAttribute": "numa"}]),
    _asked(
        "attributes of no known type",
        exactly(count=2),
        slices=[published(_NOTHING_KNOWN)],
        constraints=[_SAME],
    ),
    _asked("both kinds", exactly(count=2), slices=_placed(0, 0), constraints=[_SAME, _APART]),
    _asked("an unknown kind", exactly(), constraints=[{"requests": ["r0"]}]),
    case("a configuration of an unknown kind", claims=[claim(exactly(), config=[{"requests": ["r0"]}])]),
)


def _shared(name: str, memory: str, policy: Json | None = None, *, value: str = "10", **fields: Any) -> Json:
    capacity: Json = {"value": value} | ({} if policy is None else {"requestPolicy": policy})
    listed = [device("gpu-0", capacity={"memory": capacity}, allowMultipleAllocations=True)]
    asked = exactly(capacity={"requests": {"memory": memory}})
    claims = [claim(asked, name=one) for one in fields.pop("names", ("claim-1",))]
    return case(name, slices=[published(listed)], claims=claims, **fields)


_STEPS = {"default": "2", "validRange": {"min": "2", "max": "8", "step": "2"}}
_VALUES = {"default": "4", "validValues": ["2", "4", "8"]}
_NO_STEPS = {"default": "2", "validRange": {"min": "2"}}
_PRECISE = {"default": "600", "validRange": {"min": "0.5Ki", "max": "550"}}
_PRECISE_VALUE = {"default": "600", "validValues": ["0.5Ki"]}
_PAST_THE_LARGEST = {"default": "2", "validRange": {"min": "2", "step": "4"}}
_HALVES = [
    device(f"part-{n}", consumesCounters=[api.consumes("set-0", memory=memory)])
    for n, memory in enumerate(("5", "6"))
]
_COUNTED = [
    published(
        name="counters", count=2, sharedCounters=[{"name": "set-0", "counters": api.counters(memory="10")}]
    ),
    published(_HALVES, name="devices", count=2),
]

_CAPACITY = (
    _shared(
        "a share beside others",
        "4",
        allocated=[
            held("gpu-0", shareID="00000000-0000-0000-0000-000000000001", consumedCapacity={"memory": "6"})
        ],
    ),
    _shared("rounded up to the minimum", "1", _STEPS),
    _shared("rounded up to a step", "3", _STEPS),
    _shared("beyond the maximum", "9", _STEPS),
    _shared("a range without steps", "3500m", _NO_STEPS),
    _shared("the default asked for in the same words", "3", {"default": "3", "validValues": ["2"]}),
    _shared("the default and a minimum of arbitrary precision", "600", _PRECISE, value="10k"),
    _shared("the default and a value of arbitrary precision", "600", _PRECISE_VALUE, value="10k"),
    _shared("too much to be rounded, in few digits", "1e19", _STEPS),
    _shared("a valid value", "4", _VALUES),
    _shared("a negative request", "-1"),
    _shared("rounded up past the largest", "9223372036854775807", _PAST_THE_LARGEST),
    _shared("shares for three claims", "5", names="abc"),
    _asked("two partitions do not fit", exactly(count=2), slices=_COUNTED),
    _asked("a partition in use takes its counters", exactly(), slices=_COUNTED, allocated=[held("part-0")]),
)


def _term(*expressions: Json, kind: str = "matchExpressions") -> Json:
    return {kind: list(expressions)}


def _demand(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def _selected(name: str, *terms: Json, **fields: Any) -> Json:
    selector = {"nodeSelectorTerms": list(terms)}
    return case(name, slices=[published(devices(1), nodeSelector=selector)], **fields)


def _own(name: str, *selections: Json, count: int = 1) -> Json:
    listed = [device(f"gpu-{index}", **one) for index, one in enumerate(selections)]
    return _asked(name, exactly(count=count), slices=[published(listed, perDeviceNodeSelection=True)])


def _merged(name: str, *expressions: Json) -> Json:
    selector = {"nodeSelectorTerms": [_term(*expressions)]}
    return published([device(name)], name=name, pool=name, nodeSelector=selector)


_ZONE_A = _demand("zone", "In", "a")
_THIS_NODE, _TWO_NODES = (_demand("metadata.name", "In", *some) for some in ((NODE,), (NODE, "b")))
_MERGED = [
    _merged("a", _demand("zone", "In", "a", "b")),
    _merged("b", _demand("zone", "In", "b", "a"), _demand("rank", "Exists")),
]
_BOUND = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}

_POOLS = (
    case("a slice without any selection is skipped", slices=[published(devices(1), allNodes=False)]),
    _selected("In needs the label", _term(_demand("missing", "In", "a"))),
    _selected("Exists takes no values", _term(_demand("zone", "Exists", "a"))),
    _selected("Lt is false of a label that is no number", _term(_demand("zone", "Lt", "6"))),
    _selected("Gt of a value that is no number is malformed", _term(_demand("rank", "Gt", "x"))),
    _selected("Gt reads a plus sign", _term(_demand("rank", "Gt", "+4"))),
    _selected("an unknown operator is malformed", _term(_demand("zone", "Like", "a"))),
    _selected("a label key may have a domain", _term(_demand("a.b/zone", "DoesNotExist"))),
    _selected("a label key has one domain", _term(_demand("a/b/zone", "DoesNotExist"))),
    _selected("one of several terms is enough to match, but not to merge", _term(_ZONE_A), _term(_ZONE_A)),
    _selected(
        "a field takes one value", _term(_demand("metadata.name", "In", NODE, "b"), kind="matchFields")
    ),
    _selected(
        "a node without a name has no fields",
        _term(_THIS_NODE, kind="matchFields"),
        node=api.node("", zone="a"),
    ),
    _own("a device without a selection is not taken", {}, {"allNodes": True}),
    _own(
        "a malformed selector counts when the device is tried",
        {"nodeName": NODE},
        {"nodeSelector": {"nodeSelectorTerms": [_term(_demand("zone", "In"))]}},
        count=2,
    ),
    case(
        "a newer generation elsewhere makes an incomplete pool obsolete",
        slices=[
            published(devices(1), name="a", count=2),
            published(devices(1), name="b", generation=2, nodeName="node-2"),
        ],
        claims=_EVERY,
    ),
    case("an empty pool fails a request for all", slices=[published([])], claims=_EVERY),
    _asked("selectors of two devices are merged", exactly(count=2), slices=_MERGED),
    case("binding conditions are copied", slices=[published([device("x", **_BOUND)])]),
)

CASES = (*_REQUESTS, *_CAPACITY, *_POOLS)
