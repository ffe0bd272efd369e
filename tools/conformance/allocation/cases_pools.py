"""Written allocation cases for pools: which slices count, which nodes reach them, and their order."""

from __future__ import annotations

from typing import Any

from tools.conformance.allocation import objects as api
from tools.conformance.allocation.objects import NODE, Json, case, claim, consumes, device, devices, published

EVERY = [claim(api.exactly(allocationMode="All"))]
_SETS = [{"name": "set-0", "counters": api.counters(memory="10")}]


def _term(*expressions: Json, fields: tuple[Json, ...] = ()) -> Json:
    term: Json = {}
    if expressions:
        term["matchExpressions"] = list(expressions)
    if fields:
        term["matchFields"] = list(fields)
    return term


def _demand(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def _selected(name: str, *terms: Json, **fields: Any) -> Json:
    selector = {"nodeSelectorTerms": list(terms)}
    return case(name, slices=[published(devices(1), nodeSelector=selector)], **fields)


def _own(name: str, *selections: Json, **fields: Any) -> Json:
    listed = [device(f"gpu-{index}", **one) for index, one in enumerate(selections)]
    return case(name, slices=[published(listed, perDeviceNodeSelection=True)], **fields)


_ZONE_A = _demand("zone", "In", "a")
_THIS_NODE = _demand("metadata.name", "In", NODE)

SELECTION = (
    case("a slice of another node is not used", slices=[published(devices(1), nodeName="node-2")]),
    case("a slice of all nodes is used", slices=[published(devices(1), allNodes=True)]),
    case("a slice without any selection is skipped", slices=[published(devices(1), allNodes=False)]),
    case("an empty node name leaves all nodes", slices=[published(devices(1), nodeName="", allNodes=True)]),
    case("a node name counts before all nodes", slices=[published(devices(1), nodeName="n", allNodes=True)]),
    _selected("In matches", _term(_ZONE_A)),
    _selected("In does not match", _term(_demand("zone", "In", "b", "c"))),
    _selected("In needs the label", _term(_demand("missing", "In", "a"))),
    _selected("In without values is malformed", _term(_demand("zone", "In"))),
    _selected("NotIn matches another value", _term(_demand("zone", "NotIn", "b"))),
    _selected("NotIn matches a missing label", _term(_demand("missing", "NotIn", "b"))),
    _selected("NotIn excludes", _term(_demand("zone", "NotIn", "a"))),
    _selected("Exists matches", _term(_demand("zone", "Exists"))),
    _selected("Exists takes no values", _term(_demand("zone", "Exists", "a"))),
    _selected("DoesNotExist matches", _term(_demand("missing", "DoesNotExist"))),
    _selected("DoesNotExist excludes", _term(_demand("zone", "DoesNotExist"))),
    _selected("Gt matches", _term(_demand("rank", "Gt", "4"))),
    _selected("Gt is strict", _term(_demand("rank", "Gt", "5"))),
    _selected("Lt matches", _term(_demand("rank", "Lt", "6"))),
    _selected("Lt is false of a label that is no number", _term(_demand("zone", "Lt", "6"))),
    _selected("Gt of a value that is no number is malformed", _term(_demand("rank", "Gt", "x"))),
    _selected("Gt of two values is malformed", _term(_demand("rank", "Gt", "1", "2"))),
    _selected("Gt reads a plus sign", _term(_demand("rank", "Gt", "+4"))),
    _selected("an unknown operator is malformed", _term(_demand("zone", "Like", "a"))),
    _selected("a label key must be valid", _term(_demand("zo ne", "Exists"))),
    _selected("a label key may have a domain", _term(_demand("a.b/zone", "DoesNotExist"))),
    _selected("a label key has one domain", _term(_demand("a/b/zone", "DoesNotExist"))),
    _selected("a label's value must be valid", _term(_demand("zone", "NotIn", "a b"))),
    _selected("all requirements of a term must hold", _term(_ZONE_A, _demand("rank", "Lt", "1"))),
    _selected("one of several terms is enough to match, but not to merge", _term(_ZONE_A), _term(_ZONE_A)),
    _selected("an empty term selects nothing", {}),
    _selected("no term selects nothing"),
    _selected("a field matches", _term(fields=(_THIS_NODE,))),
    _selected("a field excludes", _term(fields=(_demand("metadata.name", "NotIn", NODE),))),
    _selected("an unknown field is empty", _term(fields=(_demand("metadata.uid", "In", ""),))),
    _selected("a field takes one value", _term(fields=(_demand("metadata.name", "In", NODE, "b"),))),
    _selected("a field knows no other operator", _term(fields=(_demand("metadata.name", "Exists"),))),
    _selected("labels and fields must both hold", _term(_ZONE_A, fields=(_THIS_NODE,))),
    _selected(
        "a node without a name has no fields", _term(fields=(_THIS_NODE,)), node=api.node("", zone="a")
    ),
    _own("only a device of this node is taken", {"nodeName": "node-2"}, {"nodeName": NODE}),
    _own("a device of all nodes is taken", {"allNodes": True}),
    _own("a device without a selection is not taken", {}, {"allNodes": True}),
    _own(
        "a malformed selector counts once its device is reached",
        {"nodeName": NODE},
        {"nodeSelector": {"nodeSelectorTerms": [_term(_demand("zone", "In"))]}},
    ),
    _own(
        "a malformed selector counts when the device is tried",
        {"nodeName": NODE},
        {"nodeSelector": {"nodeSelectorTerms": [_term(_demand("zone", "In"))]}},
        claims=[claim(api.exactly(count=2))],
    ),
    _own("all devices are those of this node", {"nodeName": "node-2"}, {"nodeName": NODE}, claims=EVERY),
    case(
        "a slice's own selection comes before those of its devices",
        slices=[
            published(
                [device("a", nodeName="n"), device("b", allNodes=True)],
                nodeName=NODE,
                perDeviceNodeSelection=True,
            )
        ],
    ),
)


def _generations(name: str, one: int, other: int, **fields: Any) -> Json:
    slices = [
        published([device("old")], name="a", generation=one),
        published([device("new")], name="b", generation=other),
    ]
    return case(name, slices=slices, **fields)


def _parts(name: str, count: int, *selected: Json, **fields: Any) -> Json:
    slices = [
        published([device(f"gpu-{index}")], name=f"s{index}", count=count, **one)
        for index, one in enumerate(selected)
    ]
    return case(name, slices=slices, **fields)


COMPLETENESS = (
    _generations("the newest generation counts", 1, 2),
    _generations("the newest generation counts, whatever the order", 2, 1),
    _generations("too many slices of a generation are incomplete", 1, 1),
    _parts("a pool whose slices are missing is not used", 2, {}),
    _parts("a pool whose slices are missing fails a request for all", 2, {}, claims=EVERY),
    _parts("a pool is complete with slices of other nodes", 2, {}, {"nodeName": "node-2"}),
    _parts("all devices of a pool are those that the node reaches", 2, {}, {"nodeName": "n"}, claims=EVERY),
    _parts("a pool of another node may be incomplete", 2, {"nodeName": "node-2"}, claims=EVERY),
    _parts("two slices of a pool of two", 2, {}, {}, claims=EVERY),
    _parts("more slices than announced are incomplete", 1, {}, {}),
    case(
        "a newer generation elsewhere makes an incomplete pool obsolete",
        slices=[
            published(devices(1), name="a", count=2),
            published(devices(1), name="b", generation=2, nodeName="node-2"),
        ],
        claims=EVERY,
    ),
    case(
        "a newer generation elsewhere is not noticed by a complete pool",
        slices=[
            published(devices(1), name="a"),
            published(devices(1), name="b", generation=2, nodeName="node-2"),
        ],
    ),
    case(
        "the first slice says how many there are",
        slices=[published([device("a")], name="b", count=2), published([device("b")], name="a", count=1)],
    ),
    case("an empty pool fails a request for all", slices=[published([])], claims=EVERY),
    case("no slices at all", slices=[]),
    case("a device name twice makes the pool invalid", slices=[published([device("a"), device("a")])]),
    case(
        "an invalid pool does not matter while another one fits",
        slices=[published([device("a"), device("a")]), published(devices(1), name="other", pool="pool-2")],
    ),
    case("an invalid pool fails all", slices=[published([device("a"), device("a")])], claims=EVERY),
    case(
        "a device name twice in slices of two nodes is not noticed",
        slices=[
            published(devices(1), name="a", count=2),
            published(devices(1), name="b", count=2, nodeName="node-2"),
        ],
    ),
    case(
        "a counter set twice makes the pool invalid",
        slices=[
            published(name="c", count=2, sharedCounters=_SETS * 2),
            published([device("a", consumesCounters=[consumes("set-0", memory="1")])], name="d", count=2),
        ],
    ),
    case(
        "a counter set must exist", slices=[published([device("a", consumesCounters=[consumes("x", y="1")])])]
    ),
    case(
        "a counter must exist",
        slices=[
            published(name="c", count=2, sharedCounters=_SETS),
            published([device("a", consumesCounters=[consumes("set-0", cores="1")])], name="d", count=2),
        ],
    ),
    case(
        "a dangling counter on another node makes the pool invalid",
        slices=[
            published([device("a")], name="c", count=2),
            published(
                [device("b", consumesCounters=[consumes("x", y="1")])], name="d", count=2, nodeName="n"
            ),
        ],
    ),
    case(
        "devices beside counter sets are not looked at",
        slices=[published([device("a")], sharedCounters=_SETS)],
    ),
    case(
        "counters of another node's slice are found",
        slices=[
            published(name="c", count=2, sharedCounters=_SETS, nodeName="node-2"),
            published([device("a", consumesCounters=[consumes("set-0", memory="1")])], name="d", count=2),
        ],
    ),
    case(
        "compatibility groups hide their slice, so that the pool is incomplete",
        slices=[
            published(name="c", count=2, sharedCounters=_SETS),
            published(
                [
                    device("a"),
                    device(
                        "b", consumesCounters=[consumes("set-0", memory="1") | {"compatibilityGroups": ["g"]}]
                    ),
                ],
                name="d",
                count=2,
            ),
        ],
        claims=EVERY,
    ),
)

_BOUND = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}

ORDER = (
    case(
        "pools come by name",
        slices=[published(devices(1), name="a", pool="b"), published(devices(1), name="b", pool="a")],
    ),
    case(
        "pools come by driver first",
        slices=[
            published(devices(1), name="a", pool="a", driver="z.example.com"),
            published(devices(1), name="b", pool="b", driver="a.example.com"),
        ],
    ),
    case(
        "names are compared byte by byte",
        slices=[published(devices(1), name="a", pool="a-"), published(devices(1), name="b", pool="a/b")],
    ),
    case(
        "slices come by their names",
        slices=[published([device("x")], name="b", count=2), published([device("y")], name="a", count=2)],
    ),
    case("devices come in the order of the slice", slices=[published([device("b"), device("a")])]),
    case(
        "pools with binding conditions come last",
        slices=[published([device("x", **_BOUND)], pool="a"), published(devices(1), name="b", pool="b")],
    ),
    case(
        "an empty list of binding conditions counts as one",
        slices=[
            published([device("x", bindingConditions=[])], pool="a"),
            published(devices(1), name="b", pool="b"),
        ],
    ),
    case("binding conditions are copied", slices=[published([device("x", **_BOUND)])]),
)

CASES = (*SELECTION, *COMPLETENESS, *ORDER)
