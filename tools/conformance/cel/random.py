"""Makes random selectors, mostly well typed, and random devices for them.

A selector grows from templates for each kind of value, and ends with leaves. In a template ``<int>`` is
replaced by an expression that is mostly of that kind, ``<!int>`` by one that always is, and ``$int`` by the
name of a new variable of that kind, which the rest of the template can use.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

from tools.conformance.area import Case

_NUMBERS = ("int", "uint", "double")
_ORDERED = (*_NUMBERS, "string", "bytes", "bool", "duration", "timestamp")
_ALL = (*_ORDERED, "ints", "strings", "map", "quantity", "semver", "dyn", "optional", "null", "kind")

_COMPARED = tuple(f"<{kind}> {operator} <{kind}>" for kind in _ORDERED for operator in ("<", "<=", ">", ">="))
_EQUAL = tuple(f"<{kind}> {operator} <{kind}>" for kind in _ALL for operator in ("==", "!="))
_ARITHMETIC = {kind: tuple(f"<{kind}> {sign} <{kind}>" for sign in "+-*/") for kind in _NUMBERS}

_LEAVES: dict[str, tuple[str, ...]] = {
    "bool": ("true", "false", "device.allowMultipleAllocations", 'device.driver == "gpu.example.com"'),
    "int": ("0", "1", "-1", "2", "7", "9223372036854775807", "-9223372036854775808", "0x1F"),
    "uint": ("0u", "1u", "3u", "18446744073709551615u", "0xFu"),
    "double": ("0.0", "1.0", "-2.5", "1e3", "1e308", "0.1", "1e19"),
    "string": (
        '""', '"a"', '"H100"', "'b,c'", "device.driver", '"é"', "r'\\d'", '"1.2.3"', '"80Gi"', '"12"',
        '"true"',
    ),
    "bytes": ("b''", "b'a'", "b'\\xff'", "b'é'"),
    "duration": ("duration('0s')", "duration('1h30m')", "duration('-1.5s')", "duration('2562047h')"),
    "timestamp": (
        "timestamp(0)", "timestamp('2026-01-02T03:04:05.6Z')", "timestamp('9999-12-31T23:59:59+01:00')",
    ),
    "ints": ("[1]", "[1, 2, 3]", "[3, 1, 2, 1]", "[0]", "[]"),
    "strings": ("['a']", "['a', 'H100', 'b']", "['x', 'x']", "[]"),
    "map": ("{'a': 1}", "{'model': 2}", "{}"),
    "quantity": ("quantity('1')", "quantity('80Gi')", "quantity('-5m')"),
    "semver": ("semver('1.2.3')", "semver('1.2.3-rc.1')", "semver('v2', true)"),
    "optional": ("optional.of(1)", "optional.none()", "{'a': 1}.?a"),
    "dyn": (
        'device.attributes["gpu.example.com"].model', 'device.attributes["gpu.example.com"].index',
        "device.attributes[device.driver].list", "device.attributes[device.driver].version",
        'device.attributes["net.example.com"].flag', "dyn(1)", "dyn('a')", "dyn(1.5)", "dyn(2u)",
        "dyn([1])", "dyn({'a': 1})", "dyn(null)", "dyn(true)",
    ),
    "null": ("null",),
    "kind": ("int", "string", "type(1)", "list", "type(null)"),
    "name": ("a", "model", "index", "list", "flag", "nothing"),
    "driver": ('"gpu.example.com"', '"net.example.com"', "device.driver", '"nobody"'),
}  # fmt: skip

_TEMPLATES: dict[str, tuple[str, ...]] = {
    "bool": (
        *_COMPARED, *_EQUAL, "<bool> && <bool>", "<bool> || <bool>", "!<bool>", "!(<bool>)", "(<bool>)",
        "<bool> ? <bool> : <bool>", "<bool> && <bool> && <bool>", "(<bool> || <bool>) && <bool>",
        "<int> in <ints>", "<dyn> in <ints>", "<string> in <strings>", "<string> in <map>",
        "<dyn> in <dyn>", "<double> in [1, 2, 3]", "<dyn> in ['a', 'H100']", "<dyn> == <int>",
        "<dyn> == <string>", "<dyn> != <dyn>", "<dyn> > <int>", "<dyn> < <double>", "<dyn> <= <dyn>",
        "<int> == <double>", "<int> < <double>", "<uint> >= <int>", "dyn(<int>) == <double>",
        "dyn(<uint>) == <int>", "dyn(<string>) == <int>", "<string>.contains(<string>)",
        "<string>.startsWith(<string>)", "<string>.endsWith(<string>)", "<string>.matches('^[a-z]+$')",
        "<string>.matches(<string>)", "matches(<string>, 'H.*')", "<dyn>.startsWith(<string>)",
        "<dyn>.matches('1')", "<string>.contains(<dyn>)", "<ints>.all($int, <bool>)",
        "<ints>.exists($int, <bool>)", "<ints>.exists_one($int, <bool>)", "<strings>.all($string, <bool>)",
        "<strings>.exists($string, <bool>)", "<ints>.all($int, $int, <bool>)",
        "<strings>.exists($int, $string, <bool>)", "<ints>.existsOne($int, $int, <bool>)",
        "<dyn>.exists($dyn, <bool>)", "<dyn>.all($dyn, <bool>)", "<map>.exists($string, <bool>)",
        "<map>.all($string, $int, <bool>)", "{<!string>: <int>}.exists($string, $int, <bool>)",
        "device.attributes.exists($string, <bool>)", "device.attributes[<driver>].all($string, <bool>)",
        "device.capacity[<driver>].exists($string, $quantity, <bool>)",
        "has(device.attributes[<driver>].<name>)", "has(device.capacity[<driver>].<name>)",
        "has(<map>.<name>)", "has(<dyn>.<name>)", "has(device.attributes.<name>)",
        "has(<dyn>.<name>.<name>)", "<string> in device.attributes[<driver>]",
        "<driver> in device.attributes", "'model' in device.attributes[<driver>]", "<optional>.hasValue()",
        "device.attributes[<driver>].?<name>.hasValue()",
        "device.attributes[<driver>][?<string>].hasValue()", "<dyn>.?<name>.hasValue()",
        "<dyn>[?<dyn>].hasValue()", "<optional> == <optional>", "<quantity>.isGreaterThan(<quantity>)",
        "<quantity>.isLessThan(<quantity>)", "<quantity>.isInteger()", "isQuantity(<string>)",
        "<semver>.isGreaterThan(<semver>)", "<semver>.isLessThan(<semver>)", "isSemver(<string>)",
        "<dyn>.isLessThan(semver('1.1.0'))", "<dyn>.isGreaterThan(<quantity>)", "<ints>.isSorted()",
        "<strings>.isSorted()", "<ints>.includes(<int>)", "<dyn>.includes(<dyn>)", "<dyn>.isSorted()",
        "sets.contains(<ints>, <ints>)", "sets.intersects(<strings>, <strings>)",
        "sets.equivalent(<ints>, <ints>)", "isIP(<string>)", "isURL(<string>)", "isCIDR(<string>)",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3')", "ip('10.0.0.1').isLoopback()",
        "ip(<string>).family() == 4", "format.dns1123Label().validate(<string>).hasValue()",
        "bool(<string>)", "cel.bind($int, <int>, <bool>)", "cel.bind($string, <string>, <bool>)",
        "cel.bind($dyn, <dyn>, <bool>)", "cel.bind($bool, <bool>, <bool>)",
        "cel.bind($ints, <ints>, <bool>)", "cel.bind($strings, <strings>, <bool>)", "type(<dyn>) == <kind>",
        "type(<dyn>) == type(<dyn>)", "<dyn>", "<optional>.optMap($int, <bool>).orValue(<bool>)",
        "<int> == <string>", "<null> == <quantity>", "<quantity> == <null>", "<quantity> == <dyn>",
        "<dyn> == <semver>", "<dyn> != <quantity>", "[<dyn>] == [<dyn>]", "{'a': <dyn>} == {'a': <dyn>}",
        "<string>.foo()", "bar(<int>)", "[<bool>, <bool>].exists($bool, <bool>)",
        "[[<int>], <ints>].all($ints, <bool>)", "<ints>.exists($int, <ints>.all($int, <bool>))",
    ),
    "int": (
        *_ARITHMETIC["int"], "<int> % <int>", "-<int>", "-(<int>)", "(<int>)", "<bool> ? <int> : <int>",
        "size(<string>)", "<string>.size()", "<ints>.size()", "size(<map>)", "<bytes>.size()",
        "size(<dyn>)", "<ints>[<int>]", "<ints>[0]", "<map>[<string>]", "<map>.<name>", "int(<double>)",
        "int(<uint>)", "int(<string>)", "int(<duration>)", "int(<timestamp>)", "int(<dyn>)", "<ints>.sum()",
        "<ints>.max()", "<ints>.min()", "<ints>.indexOf(<int>)", "<strings>.lastIndexOf(<string>)",
        "<string>.indexOf(<string>)", "<timestamp>.getFullYear()", "<timestamp>.getHours('+02:30')",
        "<timestamp>.getDayOfWeek()", "<duration>.getSeconds()", "<duration>.getMinutes()",
        "<optional>.orValue(<int>)", "<optional>.value()", "<semver>.major()",
        "<quantity>.compareTo(<quantity>)", "<quantity>.sign()", "<quantity>.asInteger()",
        "<semver>.compareTo(<semver>)", "device.attributes.size()", "device.attributes[<driver>].size()",
        "cel.bind($int, <int>, <int>)", "<optional>.optMap($int, <int>).orValue(<int>)",
        "device.attributes[<driver>].?index.orValue(<int>)", "<dyn> + <int>", "<int> - <dyn>",
        "({'a': <int>}).a", "[<int>, <int>][<int>]", "(<bool> ? {'a': <int>} : <map>).a",
        "<ints>.filter($int, <bool>).size()", "<ints>.map($int, <int>)[0]", "<ints>.reverse()[0]",
    ),
    "uint": (
        *_ARITHMETIC["uint"], "<uint> % <uint>", "uint(<int>)", "uint(<double>)", "uint(<string>)",
        "<bool> ? <uint> : <uint>", "(<uint>)",
    ),
    "double": (
        *_ARITHMETIC["double"], "-<double>", "double(<int>)", "double(<string>)", "double(<uint>)",
        "<quantity>.asApproximateFloat()", "(<double>)", "[<double>, <double>].max()",
    ),
    "string": (
        "<string> + <string>", "string(<int>)", "string(<double>)", "string(<uint>)", "string(<bool>)",
        "string(<bytes>)", "string(<duration>)", "string(<timestamp>)", "string(<dyn>)",
        "<bool> ? <string> : <string>", "<strings>[<int>]", "<strings>.join(<string>)", "<strings>.join()",
        "<string>.lowerAscii()", "<string>.upperAscii()", "<string>.trim()",
        "<string>.replace(<string>, <string>)", "<string>.substring(<int>)", "<string>.substring(0, <int>)",
        "<string>.charAt(<int>)", "<string>.find('[a-z]+')", "<strings>.max()", "<string>.find(<string>)",
        "'%s-%d'.format([<string>, <int>])", "'%s'.format([<dyn>])", "'%s'.format([<ints>])",
        "'%.2f'.format([<double>])", "cel.bind($string, <string>, <string>)",
        "device.attributes[<driver>].?model.orValue(<string>)", "<string>.split(',')[0]", "(<string>)",
        "<dyn> + <string>", "strings.quote(<string>)", "<string>.reverse()",
    ),
    "bytes": ("<bytes> + <bytes>", "bytes(<string>)", "(<bytes>)", "<bool> ? <bytes> : <bytes>"),
    "duration": (
        "<duration> + <duration>", "<duration> - <duration>", "<timestamp> - <timestamp>", "-<duration>",
        "duration(<string>)", "duration('1m')",
    ),
    "timestamp": (
        "<timestamp> + <duration>", "<duration> + <timestamp>", "<timestamp> - <duration>",
        "timestamp(<int>)", "timestamp(<string>)",
    ),
    "ints": (
        "<ints> + <ints>", "[<int>]", "[<int>, <int>]", "<ints>.map($int, <int>)",
        "<ints>.filter($int, <bool>)", "<ints>.map($int, <bool>, <int>)", "<strings>.map($string, <int>)",
        "<bool> ? <ints> : <ints>", "<ints>.transformList($int, $int, <int>)",
        "<strings>.transformList($int, $string, <bool>, <int>)", "[?(<ints>).last(), <int>]",
        "<ints>.reverse()", "<ints>.sort()", "<ints>.distinct()", "<ints>.slice(0, <int>)",
        "lists.range(3)", "[<ints>, <ints>].flatten()", "<ints>.sortBy($int, <int>)", "dyn(<ints>)",
        "{<!string>: <int>}.transformList($string, $int, <int>)",
        "<strings>.sortBy($string, <int>).map($string, <int>)",
    ),
    "strings": (
        "<strings> + <strings>", "[<string>]", "[<string>, <string>]", "<strings>.map($string, <string>)",
        "<strings>.filter($string, <bool>)", "<ints>.map($int, <string>)", "<string>.split(<string>)",
        "<string>.findAll('[a-z]')", "<strings>.sort()", "<strings>.distinct()",
        "{<!string>: <int>}.map($string, <string>)", "<strings>.slice(<int>, <int>)",
    ),
    "map": (
        "{<!string>: <int>}", "{<!string>: <int>, <!string>: <int>}", "{?'a': optional.of(<int>)}",
        "<bool> ? <map> : <map>", "<map>.transformMap($string, $int, <int>)",
        "{<!string>: <int>}.transformMap($string, $int, <bool>, <int>)",
        "<strings>.transformMapEntry($int, $string, {<!string>: <int>})",
        "{'a': <int>, ?<!string>: (<ints>).first()}",
    ),
    "quantity": (
        "quantity(<string>)", "quantity('100Mi')", "<quantity>.add(<quantity>)", "<quantity>.sub(<int>)",
        "device.capacity[<driver>].<name>", "device.capacity[<driver>].?<name>.orValue(<quantity>)",
        "<bool> ? <quantity> : <quantity>", "cel.bind($quantity, <quantity>, <quantity>)",
    ),
    "semver": (
        "semver(<string>)", "semver('0.1.0')", "semver(<string>, true)", "<bool> ? <semver> : <semver>",
    ),
    "optional": (
        "optional.of(<int>)", "optional.ofNonZeroValue(<int>)", "<map>[?<string>]", "<ints>[?<int>]",
        "<map>.?<name>", "<optional>.or(<optional>)", "<optional>.optMap($int, <int>)",
        "<optional>.optFlatMap($int, <optional>)", "optional.of(<map>).<name>",
        "optional.of(<ints>)[<int>]", "<ints>.first()", "<ints>.last()", "<bool> ? <optional> : <optional>",
        "{'a': <map>}.?a.<name>", "{'a': <map>}.?<name>.?a", "optional.of(<dyn>)", "<dyn>.?<name>",
        "optional.unwrap([<optional>, <optional>]).first()",
    ),
    "dyn": (
        "device.attributes[<driver>].<name>", "device.attributes[<driver>][<string>]",
        "device.attributes[<driver>].?<name>.value()", "dyn(<int>)", "dyn(<string>)", "dyn(<double>)",
        "dyn(<uint>)", "dyn(<ints>)", "dyn(<map>)", "dyn(<bool>)", "dyn(<quantity>)", "dyn(<semver>)",
        "dyn(<bytes>)", "dyn(<optional>)", "<bool> ? <dyn> : <int>", "<dyn>[<int>]", "<dyn>.<name>",
        "<dyn>[<dyn>]", "<dyn> + <dyn>", "(<bool> ? <dyn> : <dyn>).<name>", "dyn(<strings>)[<int>]",
        "<dyn>.size()", "<dyn>.max()", "<dyn>.filter($dyn, <bool>)", "<dyn>.map($dyn, <int>)",
        "dyn(<kind>)", "dyn(<duration>)", "-<dyn>", "<dyn>.sum()", "<dyn>.first().value()", "<dyn>.sort()",
        "<dyn>.reverse()", "<dyn>.flatten()", "<dyn>.indexOf(<dyn>)",
    ),
    "null": ("null", "dyn(null)"),
    "kind": (
        "type(<dyn>)", "type(<int>)", "type(<ints>)", "type(<kind>)", "bool", "google.protobuf.Duration",
        "type(<quantity>)",
    ),
    "name": _LEAVES["name"],
    "driver": _LEAVES["driver"],
}  # fmt: skip


_PLACE = re.compile(r"<(!?\w+)>|\$(\w+)")
_KINDS = tuple(_TEMPLATES)
_DRIVERS = ("gpu.example.com", "net.example.com", "d")
_DOMAINS = (*_DRIVERS, "other.example.com")
_NAMES = ("a", "model", "index", "flag", "version", "list")
_TEXTS = ("", "a", "H100", "x-y", "1.2.3", "é", "10.0.0.1", "80Gi", "A long name of a product with blanks")
_VERSIONS = ("1.0.0", "1.2.3", "0.1.0-rc.1", "550.54.15+build", "10.0.0")
_QUANTITIES = ("0", "1", "80Gi", "1500m", "-1", "1e3", "0.1", "9223372036854775807", "1Ki", "100M")
_INTEGERS = (0, 1, -1, 3, 48, 2**63 - 1, -(2**63))
_WRONG = 0.02
"""The probability that a place gets an expression of another kind."""


def random_case(rng: Random) -> Case:
    """One selector and one device."""
    expression = _Grown(rng).expression("bool", rng.choice((1, 2, 3, 3, 4, 5)), ())
    if rng.random() < 0.02:
        expression = _damaged(expression, rng)
    return {"op": "cel", "expression": expression[:10_000], "device": _random_device(rng)}


class _Grown:
    """Grows one selector."""

    def __init__(self, rng: Random) -> None:
        self._chance = rng
        self._variables = 0

    def expression(self, kind: str, depth: int, scope: tuple[tuple[str, str], ...]) -> str:
        rng = self._chance
        if kind[0] == "!":
            kind = kind[1:]
        elif rng.random() < _WRONG:
            kind = rng.choice(_KINDS)
        known = [name for name, of_kind in scope if of_kind == kind]
        if known and rng.random() < 0.4:
            return rng.choice(known)
        if depth <= 0:
            return rng.choice(_LEAVES[kind])
        return self._filled(rng.choice(_TEMPLATES[kind]), depth, scope)

    def _filled(self, template: str, depth: int, scope: tuple[tuple[str, str], ...]) -> str:
        parts: list[str] = []
        position = 0
        for match in _PLACE.finditer(template):
            parts.append(template[position : match.start()])
            position = match.end()
            if match[2]:
                self._variables += 1
                name = f"v{self._variables}"
                scope = (*scope, (name, match[2]))
                parts.append(name)
            else:
                parts.append(self.expression(match[1], depth - 1, scope))
        return "".join((*parts, template[position:]))


def _damaged(expression: str, rng: Random) -> str:
    """The text with one character removed or added."""
    place = rng.randrange(len(expression) + 1)
    extra = rng.choice(("", "(", ")", ".", "'", "?", "1", "-", "!", "[", "&", " "))
    return expression[:place] + extra + expression[place + (not extra) :]


def _random_device(rng: Random) -> dict[str, Any]:
    """A device of one of a few drivers, with a few attributes and capacities."""
    driver = rng.choice(_DRIVERS)
    attributes = {_name(rng, driver): _attribute(rng) for _ in range(rng.randrange(8))}
    capacity = {_name(rng, driver): {"value": rng.choice(_QUANTITIES)} for _ in range(rng.randrange(4))}
    device: dict[str, Any] = {"driver": driver, "attributes": attributes, "capacity": capacity}
    if rng.random() < 0.5:
        device["allowMultipleAllocations"] = rng.random() < 0.5
    return device


def _name(rng: Random, driver: str) -> str:
    """A name with or without a domain, but not with the driver's.

    Kubernetes picks a random one of two spellings of the same name.
    """
    name, domain = rng.choice(_NAMES), rng.choice(_DOMAINS)
    return name if domain == driver or rng.random() < 0.6 else f"{domain}/{name}"


def _attribute(rng: Random) -> dict[str, Any]:
    kind = rng.choice(("string", "string", "int", "bool", "version", "strings", "ints", "bools", "versions"))
    values: dict[str, tuple[Any, ...]] = {
        "string": _TEXTS, "int": _INTEGERS, "bool": (True, False), "version": _VERSIONS,
    }  # fmt: skip
    if kind in values:
        return {kind: rng.choice(values[kind])}
    return {kind: [rng.choice(values[kind[:-1]]) for _ in range(1 + rng.randrange(3))]}
