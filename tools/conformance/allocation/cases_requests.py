"""Written allocation cases for requests: counts, alternatives, selectors, use, taints, constraints.

In ``_BACKTRACKING`` one device leads to no result, but another device that is almost equal does.
"""

from __future__ import annotations

from typing import Any

from tools.conformance.allocation import objects as api
from tools.conformance.allocation.objects import Json, case, claim, device, exactly, held, published, wanted

_MODEL_X = "device.attributes['gpu.example.com'].model == 'X'"
_NUMA_0 = "device.attributes['gpu.example.com'].numa == 0"
_HAS_NUMA = "device.attributes['gpu.example.com'].numa >= 0"
_TAINT: Json = {"key": "sick", "effect": "NoSchedule"}


_MODEL = "device.attributes['gpu.example.com'].model == 'A'"
_NUMA = "device.attributes['gpu.example.com'].numa > 0"
_ALL: Json = {"allocationMode": "All"}


def _counted_pool(pool: str, memory: str) -> list[Json]:
    listed = [
        device(
            f"{pool}-{model}",
            attributes=api.attributes(model=model),
            consumesCounters=[api.consumes("set-0", memory="6")],
        )
        for model in ("A", "X")
    ]
    shared = [{"name": "set-0", "counters": api.counters(memory=memory)}]
    return [
        published(name=f"{pool}-counters", pool=pool, count=2, sharedCounters=shared),
        published(listed, name=f"{pool}-devices", pool=pool, count=2),
    ]


def _one_that_fails(count: int) -> list[Json]:
    """``count`` devices with an attribute, then one without it, on which a selector that reads it fails."""
    listed = api.devices(count, attributes=api.attributes(numa=0))
    return [published([*listed, device("last")])]


_LARGE_OR_ONE = api.first_available("r0", wanted(_HAS_NUMA, count=32), wanted(_HAS_NUMA))

_BACKTRACKING = (
    case(
        "devices of two pools differ in the counters that are left",
        slices=[*_counted_pool("pool-a", "6"), *_counted_pool("pool-b", "12")],
        claims=[claim(exactly("r0", _MODEL), exactly("r1", _MODEL_X, count=2))],
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
                    device("a", attributes=api.attributes(numa=0)),
                    device("b", attributes=api.attributes(numa=1)),
                    device("c", attributes=api.attributes(numa=0)),
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
        claims=[claim(_LARGE_OR_ONE, api.first_available("r1", wanted(count=2), wanted()))],
    ),
    case(
        "an alternative without admin access cannot have it",
        allocated=[held("gpu-0")],
        claims=[claim(api.first_available("r0", wanted(adminAccess=True)))],
    ),
    case(
        "a device that fails comes after too few candidates",
        slices=_one_that_fails(3),
        claims=[claim(exactly("r0", _HAS_NUMA, count=5))],
    ),
)


def _asked(name: str, *requests: Json, **fields: Any) -> Json:
    constraints = {"constraints": fields.pop("constraints")} if "constraints" in fields else {}
    return case(name, claims=[claim(*requests, **constraints)], **fields)


def _of(*models: str | None) -> list[Json]:
    listed = [
        device(f"gpu-{index}", attributes=api.attributes(model=model) if model else {})
        for index, model in enumerate(models)
    ]
    return [published(listed)]


_COUNTS = (
    _asked("one device", exactly()),
    _asked("two devices", exactly(count=2)),
    _asked("more devices than there are", exactly(count=3)),
    _asked("no devices", exactly(count=0)),
    _asked("no requests"),
    case("no claims", claims=[]),
    _asked("a count that is missing is none", exactly(count=None)),
    _asked("a huge count", exactly(count=2**62)),
    _asked("all devices", exactly(**_ALL)),
    _asked("all devices where there are none", exactly(**_ALL), slices=[]),
    _asked("all devices one of which is in use", exactly(**_ALL), allocated=[held("gpu-1")]),
    _asked("all devices for two requests", exactly(**_ALL), exactly("r1", **_ALL)),
    _asked("one device, then all", exactly(), exactly("r1", **_ALL)),
    _asked("32 devices", exactly(count=32), slices=[published(api.devices(33))]),
    _asked("33 devices", exactly(count=33), slices=[published(api.devices(33))]),
    _asked(
        "33 devices in two requests", exactly(count=32), exactly("r1"), slices=[published(api.devices(40))]
    ),
    _asked("all of 33 devices", exactly(**_ALL), slices=[published(api.devices(33))]),
    case(
        "each claim may have 32",
        slices=[published(api.devices(64))],
        claims=[claim(exactly(count=32)), claim(exactly(count=32), name="b")],
    ),
    _asked("an unknown mode", exactly(allocationMode="Some")),
    _asked("no mode", exactly(allocationMode="")),
    _asked("a class that does not exist", exactly(deviceClassName="missing")),
    _asked("no class", exactly(deviceClassName="")),
    _asked("a selector of an unknown kind", exactly(selectors=[{}])),
    _asked("derived attributes are off", exactly(derivedAttributes=[{"name": "a/b"}])),
    _asked(
        "a class that does not exist in an alternative",
        api.first_available("r0", wanted(), wanted(deviceClassName="x")),
    ),
    _asked("a second request takes another device", exactly(), exactly("r1")),
    _asked("two requests for one device", exactly(), exactly("r1"), slices=[published(api.devices(1))]),
    case("two claims take two devices", claims=[claim(exactly()), claim(exactly(), name="claim-2")]),
    case("two claims for three devices", claims=[claim(exactly()), claim(exactly(count=2), name="claim-2")]),
)

_SEARCH = (
    _asked("a selector chooses", exactly("r0", _MODEL), slices=_of("B", "A")),
    _asked(
        "a class's selector chooses",
        exactly(),
        slices=_of("B", "A"),
        classes=[api.device_class("gpu", [_MODEL])],
    ),
    _asked("a selector that fails fails the claim", exactly("r0", _MODEL), slices=_of(None, "A")),
    _asked("a selector that would fail later is not reached", exactly("r0", _MODEL), slices=_of("A", None)),
    _asked(
        "a device in use is not judged",
        exactly("r0", _MODEL),
        slices=_of(None, "A"),
        allocated=[held("gpu-0")],
    ),
    _asked(
        "for all devices each is judged",
        exactly("r0", _MODEL, **_ALL),
        slices=_of("A", None),
        allocated=[held("gpu-1")],
    ),
    _asked(
        "a selector after one that is false is not asked", exactly("r0", "false", _MODEL), slices=_of(None)
    ),
    _asked(
        "a class's selector comes first",
        exactly("r0", _MODEL),
        slices=_of(None),
        classes=[api.device_class("gpu", ["false"])],
    ),
    _asked("a selector that does not compile", exactly("r0", "1 +")),
    _asked("a selector that does not compile and is not reached", exactly("r0", "1 +"), slices=[]),
    _asked("a selector that gives no bool", exactly("r0", "device.driver")),
    _asked(
        "the first request leaves what the second needs",
        exactly(),
        exactly("r1", _MODEL),
        slices=_of("A", "B"),
    ),
    case(
        "the first claim leaves what the second needs",
        slices=_of("A", "B"),
        claims=[claim(exactly()), claim(exactly("r0", _MODEL), name="claim-2")],
    ),
    _asked(
        "later positions only within a request",
        exactly(count=2),
        exactly("r1", _MODEL),
        slices=_of("A", "A", "B"),
    ),
    _asked("a failing selector of a second request", exactly(), exactly("r1", _NUMA), slices=_of("A", "B")),
    _asked("one more than there are alike", exactly(count=13), slices=[published(api.devices(12))]),
    _asked(
        "two requests, one more than there are alike",
        exactly(count=4),
        exactly("r1", count=5),
        slices=[published(api.devices(8))],
    ),
    _asked("an alternative that fits", api.first_available("r0", wanted(_MODEL), wanted()), slices=_of("A")),
    _asked("a later alternative", api.first_available("r0", wanted(_MODEL), wanted()), slices=_of("B")),
    _asked("no alternative", api.first_available("r0", wanted(_MODEL), wanted(count=2)), slices=_of("B")),
    _asked(
        "an alternative is given up for a later request",
        api.first_available("r0", wanted(count=2), wanted()),
        exactly("r1"),
    ),
    _asked(
        "two prioritized requests",
        api.first_available("r0", wanted(count=2), wanted()),
        api.first_available("r1", wanted(count=2), wanted()),
    ),
    _asked(
        "an alternative of all devices that match nothing",
        api.first_available("r0", wanted("false", **_ALL), wanted()),
    ),
    _asked("an alternative of no devices", api.first_available("r0", wanted(count=0), wanted())),
    _asked("an alternative beyond the limit", api.first_available("r0", wanted(count=40), wanted())),
    _asked(
        "all alternatives beyond the limit", api.first_available("r0", wanted(count=40), wanted(count=33))
    ),
    _asked(
        "an alternative too large for a later request",
        api.first_available("r0", wanted(count=32), wanted()),
        exactly("r1"),
        slices=[published(api.devices(40))],
    ),
    _asked(
        "an alternative too large after an earlier request",
        exactly(count=30),
        api.first_available("r1", wanted(count=3), wanted(count=2)),
        slices=[published(api.devices(40))],
    ),
    case(
        "the limit of a second claim lets the first try others",
        slices=[published(api.devices(40))],
        claims=[
            claim(api.first_available("r0", wanted(), wanted(count=2))),
            claim(api.first_available("r0", wanted(count=32), wanted()), exactly("r1"), name="b"),
        ],
    ),
    _asked(
        "an error in an alternative ends it all",
        api.first_available("r0", wanted(_MODEL), wanted()),
        slices=_of(None),
    ),
)

_ADMIN: Json = {"adminAccess": True}

_USE = (
    case("a device in use is passed over", allocated=[held("gpu-0")]),
    case("all devices in use", allocated=[held("gpu-0", "gpu-1")]),
    case("the same name in another pool is another device", allocated=[held("gpu-0", pool="pool-2")]),
    case(
        "the same name of another driver is another device", allocated=[held("gpu-0", driver="z.example.com")]
    ),
    case("admin access holds nothing", allocated=[held("gpu-0", adminAccess=True)]),
    case("a claim without an allocation holds nothing", allocated=[claim(exactly())]),
    _asked("admin access takes what is in use", exactly(**_ADMIN), allocated=[held("gpu-0")]),
    _asked("admin access that is false", exactly(adminAccess=False), allocated=[held("gpu-0")]),
    _asked("admin access takes a device once in a claim", exactly(**_ADMIN), exactly("r1", **_ADMIN)),
    _asked(
        "a request does not get what admin access of the same claim has", exactly(**_ADMIN), exactly("r1")
    ),
    _asked("admin access takes a device that another request has", exactly(), exactly("r1", **_ADMIN)),
    case("admin access beside another claim", claims=[claim(exactly()), claim(exactly(**_ADMIN), name="b")]),
    case("a claim beside admin access", claims=[claim(exactly(**_ADMIN)), claim(exactly(), name="b")]),
    _asked("admin access to all", exactly(**_ADMIN, **_ALL), allocated=[held("gpu-0")]),
    _asked("admin access to all, twice", exactly(**_ADMIN, **_ALL), exactly("r1", **_ADMIN, **_ALL)),
)


def _tainted(name: str, taint: Json, *tolerations: Json, **fields: Any) -> Json:
    asked = exactly(tolerations=list(tolerations), **fields) if tolerations else exactly(**fields)
    return _asked(name, asked, slices=[published([device("gpu-0", taints=[taint]), device("gpu-1")])])


_SICK = {"key": "sick", "value": "x", "effect": "NoSchedule"}

_TAINTS = (
    _tainted("a taint keeps a device away", _SICK),
    _tainted("NoExecute keeps a device away", _SICK | {"effect": "NoExecute"}),
    _tainted("None keeps nothing away", _SICK | {"effect": "None"}),
    _tainted("an unknown effect keeps nothing away", _SICK | {"effect": "Later"}),
    _tainted("a taint without a value", {"key": "sick", "effect": "NoSchedule"}, {"key": "sick"}),
    _tainted("tolerated by key and value", _SICK, {"key": "sick", "operator": "Equal", "value": "x"}),
    _tainted("Equal is the operator that is meant", _SICK, {"key": "sick", "value": "x"}),
    _tainted("not tolerated with another value", _SICK, {"key": "sick", "value": "y"}),
    _tainted("not tolerated with another key", _SICK, {"key": "tired", "operator": "Exists"}),
    _tainted("tolerated whatever the value", _SICK, {"key": "sick", "operator": "Exists"}),
    _tainted("everything tolerated", _SICK, {"operator": "Exists"}),
    _tainted("no key means any", _SICK, {"operator": "Equal", "value": "x"}),
    _tainted("not tolerated for another effect", _SICK, {"operator": "Exists", "effect": "NoExecute"}),
    _tainted("tolerated for the effect", _SICK, {"operator": "Exists", "effect": "NoSchedule"}),
    _tainted(
        "an unknown operator tolerates nothing", _SICK, {"key": "sick", "operator": "Like", "value": "x"}
    ),
    _tainted("seconds are copied", _SICK, {"operator": "Exists", "tolerationSeconds": 0, "key": ""}),
    _tainted("one of several tolerations", _SICK, {"key": "a"}, {"key": "sick", "value": "x"}),
    _tainted("a taint keeps all devices from being taken", _SICK, **_ALL),
    _tainted("a taint keeps admin access away", _SICK, **_ADMIN),
    _asked(
        "every taint must be tolerated",
        exactly(tolerations=[{"key": "sick", "operator": "Exists"}]),
        slices=[published([device("a", taints=[_SICK, _SICK | {"key": "tired"}]), device("b")])],
    ),
    _asked(
        "an alternative has tolerations of its own",
        api.first_available("r0", wanted(), wanted(tolerations=[{"operator": "Exists"}])),
        slices=[published([device("a", taints=[_SICK])])],
    ),
)


def _placed(*values: Any, name: str = "numa") -> list[Json]:
    listed = [
        device(f"gpu-{index}", attributes={} if value is None else api.attributes(**{name: value}))
        for index, value in enumerate(values)
    ]
    return [published(listed)]


def _match(
    attribute: str = "gpu.example.com/numa", *requests: str, kind: str = "matchAttribute"
) -> list[Json]:
    return [{kind: attribute} | ({"requests": list(requests)} if requests else {})]


_BOOLS = (True, False, True)
_UNLIKE = ("1", 1, True)
_APART = _match(kind="distinctAttribute")

_CONSTRAINTS = (
    _asked("devices that share a value", exactly(count=2), slices=_placed(0, 1, 0), constraints=_match()),
    _asked("no devices that share a value", exactly(count=2), slices=_placed(0, 1), constraints=_match()),
    _asked("the first choice is given up", exactly(count=2), slices=_placed(0, 1, 1), constraints=_match()),
    _asked("a device without the attribute", exactly(), slices=_placed(None, 1), constraints=_match()),
    _asked("text", exactly(count=2), slices=_placed("a", "b", "a"), constraints=_match()),
    _asked("bools", exactly(count=2), slices=_placed(*_BOOLS), constraints=_match()),
    _asked("versions", exactly(count=2), slices=_placed("v1.0.0", "v1.0.1", "v1.0.0"), constraints=_match()),
    _asked("values of unlike types", exactly(count=2), slices=_placed(*_UNLIKE), constraints=_match()),
    _asked(
        "the attribute of another driver",
        exactly(),
        slices=_placed(0),
        constraints=_match("nic.example.com/numa"),
    ),
    _asked("a name without a domain", exactly(), slices=_placed(0), constraints=_match("numa")),
    _asked(
        "a qualified attribute",
        exactly(count=2),
        slices=_placed(0, 1, 0, name="a.b/numa"),
        constraints=_match("a.b/numa"),
    ),
    _asked(
        "the qualified attribute before the bare one",
        exactly(count=2),
        slices=[
            published(
                [
                    device("a", attributes={"numa": {"int": 0}, "gpu.example.com/numa": {"int": 1}}),
                    device("b", attributes={"numa": {"int": 0}}),
                    device("c", attributes={"numa": {"int": 1}}),
                ]
            )
        ],
        constraints=_match(),
    ),
    _asked(
        "an attribute of no known type, alone",
        exactly(),
        slices=[published([device("a", attributes={"numa": {}})])],
        constraints=_match(),
    ),
    _asked(
        "attributes of no known type",
        exactly(count=2),
        slices=[published([device("a", attributes={"numa": {}}), device("b", attributes={"numa": {}})])],
        constraints=_match(),
    ),
    _asked(
        "distinct attributes of no known type",
        exactly(count=2),
        slices=[published([device("a", attributes={"numa": {}}), device("b", attributes={"numa": {}})])],
        constraints=_APART,
    ),
    _asked("over two requests", exactly(), exactly("r1"), slices=_placed(0, 1, 0), constraints=_match()),
    _asked(
        "of one request alone",
        exactly(count=2),
        exactly("r1"),
        slices=_placed(0, 1, 1),
        constraints=_match("gpu.example.com/numa", "r0"),
    ),
    _asked(
        "of an alternative alone",
        api.first_available("r0", wanted(count=2), wanted(count=2)),
        slices=_placed(0, 1),
        constraints=_match("gpu.example.com/numa", "r0/s0"),
    ),
    _asked(
        "of all alternatives",
        api.first_available("r0", wanted(count=2), wanted()),
        slices=_placed(0, 1),
        constraints=_match("gpu.example.com/numa", "r0"),
    ),
    _asked(
        "of a request that does not exist",
        exactly(count=2),
        slices=_placed(0, 1),
        constraints=_match("gpu.example.com/numa", "r9"),
    ),
    _asked("all devices must match", exactly(**_ALL), slices=_placed(0, 1), constraints=_match()),
    _asked("all devices do match", exactly(**_ALL), slices=_placed(1, 1), constraints=_match()),
    _asked(
        "a device in use before a constraint",
        exactly(**_ALL),
        slices=_placed(0, 1),
        constraints=_match(),
        allocated=[held("gpu-1")],
    ),
    _asked("distinct values", exactly(count=2), slices=_placed(0, 0, 1), constraints=_APART),
    _asked("three distinct values", exactly(count=3), slices=_placed(0, 1, 0, 1, 2), constraints=_APART),
    _asked("not enough distinct values", exactly(count=3), slices=_placed(0, 1, 0, 1), constraints=_APART),
    _asked(
        "distinct over two requests", exactly(), exactly("r1"), slices=_placed(0, 0, 1), constraints=_APART
    ),
    _asked("distinct needs the attribute", exactly(count=2), slices=_placed(0, None, 1), constraints=_APART),
    _asked("distinct in type", exactly(count=3), slices=_placed(*_UNLIKE), constraints=_APART),
    _asked("both kinds", exactly(count=2), slices=_placed(0, 0), constraints=[*_match(), *_APART]),
    _asked("an unknown kind", exactly(), constraints=[{"requests": ["r0"]}]),
    _asked("a constraint does not bind another claim", exactly(), constraints=_match("a/b")),
)

CASES = (*_BACKTRACKING, *_COUNTS, *_SEARCH, *_USE, *_TAINTS, *_CONSTRAINTS)
