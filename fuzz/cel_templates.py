"""What random selectors grow from: the templates of each kind of value, and what stands where growth ends."""

from __future__ import annotations

_NUMBERS = ("int", "uint", "double")
_ORDERED = (*_NUMBERS, "string", "bytes", "bool", "duration", "timestamp")
_ALL = (*_ORDERED, "ints", "strings", "map", "quantity", "semver", "dyn", "optional", "null", "kind")

_COMPARED = tuple(f"<{kind}> {operator} <{kind}>" for kind in _ORDERED for operator in ("<", "<=", ">", ">="))
_EQUAL = tuple(f"<{kind}> {operator} <{kind}>" for kind in _ALL for operator in ("==", "!="))
_ARITHMETIC = {kind: tuple(f"<{kind}> {sign} <{kind}>" for sign in "+-*/") for kind in _NUMBERS}

LEAVES: dict[str, tuple[str, ...]] = {
    "bool": ("true", "false", "device.allowMultipleAllocations", 'device.driver == "gpu.example.com"'),
    "int": ("0", "1", "-1", "2", "7", "9223372036854775807", "-9223372036854775808", "0x1F"),
    "uint": ("0u", "1u", "3u", "18446744073709551615u", "0xFu"),
    "double": ("0.0", "1.0", "-2.5", "1e3", "1e308", "0.1", "1e19"),
    "string": ('""', '"a"', '"H100"', "'b,c'", "device.driver", '"é"', "r'\\d'", '"1.2.3"', '"80Gi"', '"12"', '"true"'),
    "bytes": ("b''", "b'a'", "b'\\xff'", "b'é'"),
    "duration": ("duration('0s')", "duration('1h30m')", "duration('-1.5s')", "duration('2562047h')"),
    "timestamp": ("timestamp(0)", "timestamp('2026-01-02T03:04:05.6Z')", "timestamp('9999-12-31T23:59:59+01:00')"),
    "ints": ("[1]", "[1, 2, 3]", "[3, 1, 2, 1]", "[0]", "[]"),
    "strings": ("['a']", "['a', 'H100', 'b']", "['x', 'x']", "[]"),
    "map": ("{'a': 1}", "{'model': 2}", "{}"),
    "quantity": ("quantity('1')", "quantity('80Gi')", "quantity('-5m')"),
    "semver": ("semver('1.2.3')", "semver('1.2.3-rc.1')", "semver('v2', true)"),
    "optional": ("optional.of(1)", "optional.none()", "{'a': 1}.?a"),
    "dyn": (
        'device.attributes["gpu.example.com"].model', 'device.attributes["gpu.example.com"].index',
        "device.attributes[device.driver].list", "device.attributes[device.driver].version",
        'device.attributes["net.example.com"].flag', "dyn(1)", "dyn('a')", "dyn(1.5)", "dyn(2u)", "dyn([1])", "dyn({'a': 1})",
        "dyn(null)", "dyn(true)",
    ),
    "null": ("null",),
    "kind": ("int", "string", "type(1)", "list", "type(null)"),
    "name": ("a", "model", "index", "list", "flag", "nothing"),
    "driver": ('"gpu.example.com"', '"net.example.com"', "device.driver", '"nobody"'),
}  # fmt: skip

TEMPLATES: dict[str, tuple[str, ...]] = {
    "bool": (
        *_COMPARED, *_EQUAL,
        "<bool> && <bool>", "<bool> || <bool>", "!<bool>", "!(<bool>)", "(<bool>)", "<bool> ? <bool> : <bool>",
        "<bool> && <bool> && <bool>", "(<bool> || <bool>) && <bool>",
        "<int> in <ints>", "<dyn> in <ints>", "<string> in <strings>", "<string> in <map>", "<dyn> in <dyn>", "<double> in [1, 2, 3]",
        "<dyn> in ['a', 'H100']", "<dyn> == <int>", "<dyn> == <string>", "<dyn> != <dyn>", "<dyn> > <int>", "<dyn> < <double>", "<dyn> <= <dyn>",
        "<int> == <double>", "<int> < <double>", "<uint> >= <int>", "dyn(<int>) == <double>", "dyn(<uint>) == <int>", "dyn(<string>) == <int>",
        "<string>.contains(<string>)", "<string>.startsWith(<string>)", "<string>.endsWith(<string>)", "<string>.matches('^[a-z]+$')",
        "<string>.matches(<string>)", "matches(<string>, 'H.*')", "<dyn>.startsWith(<string>)", "<dyn>.matches('1')", "<string>.contains(<dyn>)",
        "<ints>.all($int, <bool>)", "<ints>.exists($int, <bool>)", "<ints>.exists_one($int, <bool>)", "<strings>.all($string, <bool>)",
        "<strings>.exists($string, <bool>)", "<ints>.all($int, $int, <bool>)", "<strings>.exists($int, $string, <bool>)",
        "<ints>.existsOne($int, $int, <bool>)", "<dyn>.exists($dyn, <bool>)", "<dyn>.all($dyn, <bool>)", "<map>.exists($string, <bool>)",
        "<map>.all($string, $int, <bool>)", "{<!string>: <int>}.exists($string, $int, <bool>)", "device.attributes.exists($string, <bool>)",
        "device.attributes[<driver>].all($string, <bool>)", "device.capacity[<driver>].exists($string, $quantity, <bool>)",
        "has(device.attributes[<driver>].<name>)", "has(device.capacity[<driver>].<name>)", "has(<map>.<name>)", "has(<dyn>.<name>)",
        "has(device.attributes.<name>)", "has(<dyn>.<name>.<name>)", "<string> in device.attributes[<driver>]", "<driver> in device.attributes",
        "'model' in device.attributes[<driver>]", "<optional>.hasValue()", "device.attributes[<driver>].?<name>.hasValue()",
        "device.attributes[<driver>][?<string>].hasValue()", "<dyn>.?<name>.hasValue()", "<dyn>[?<dyn>].hasValue()", "<optional> == <optional>",
        "<quantity>.isGreaterThan(<quantity>)", "<quantity>.isLessThan(<quantity>)", "<quantity>.isInteger()", "isQuantity(<string>)",
        "<semver>.isGreaterThan(<semver>)", "<semver>.isLessThan(<semver>)", "isSemver(<string>)", "<dyn>.isLessThan(semver('1.1.0'))",
        "<dyn>.isGreaterThan(<quantity>)", "<ints>.isSorted()", "<strings>.isSorted()", "<ints>.includes(<int>)", "<dyn>.includes(<dyn>)", "<dyn>.isSorted()",
        "sets.contains(<ints>, <ints>)", "sets.intersects(<strings>, <strings>)", "sets.equivalent(<ints>, <ints>)", "isIP(<string>)", "isURL(<string>)",
        "isCIDR(<string>)", "cidr('10.0.0.0/8').containsIP('10.1.2.3')", "ip('10.0.0.1').isLoopback()", "ip(<string>).family() == 4",
        "format.dns1123Label().validate(<string>).hasValue()", "bool(<string>)", "cel.bind($int, <int>, <bool>)", "cel.bind($string, <string>, <bool>)",
        "cel.bind($dyn, <dyn>, <bool>)", "cel.bind($bool, <bool>, <bool>)", "type(<dyn>) == <kind>", "type(<dyn>) == type(<dyn>)", "<dyn>",
        "<optional>.optMap($int, <bool>).orValue(<bool>)", "<int> == <string>", "<null> == <quantity>", "<quantity> == <null>", "<quantity> == <dyn>",
        "<dyn> == <semver>", "<dyn> != <quantity>", "[<dyn>] == [<dyn>]", "{'a': <dyn>} == {'a': <dyn>}", "<string>.foo()", "bar(<int>)",
        "[<bool>, <bool>].exists($bool, <bool>)", "[[<int>], <ints>].all($ints, <bool>)", "<ints>.exists($int, <ints>.all($int, <bool>))",
    ),
    "int": (
        *_ARITHMETIC["int"], "<int> % <int>", "-<int>", "-(<int>)", "(<int>)", "<bool> ? <int> : <int>", "size(<string>)", "<string>.size()", "<ints>.size()", "size(<map>)",
        "<bytes>.size()", "size(<dyn>)", "<ints>[<int>]", "<ints>[0]", "<map>[<string>]", "<map>.<name>", "int(<double>)", "int(<uint>)", "int(<string>)", "int(<duration>)",
        "int(<timestamp>)", "int(<dyn>)", "<ints>.sum()", "<ints>.max()", "<ints>.min()", "<ints>.indexOf(<int>)", "<strings>.lastIndexOf(<string>)", "<string>.indexOf(<string>)",
        "<timestamp>.getFullYear()", "<timestamp>.getHours('+02:30')", "<timestamp>.getDayOfWeek()", "<duration>.getSeconds()", "<duration>.getMinutes()", "<optional>.orValue(<int>)",
        "<optional>.value()", "<semver>.major()", "<quantity>.compareTo(<quantity>)", "<quantity>.sign()", "<quantity>.asInteger()", "<semver>.compareTo(<semver>)",
        "device.attributes.size()", "device.attributes[<driver>].size()", "cel.bind($int, <int>, <int>)", "<optional>.optMap($int, <int>).orValue(<int>)",
        "device.attributes[<driver>].?index.orValue(<int>)", "<dyn> + <int>", "<int> - <dyn>", "({'a': <int>}).a", "[<int>, <int>][<int>]", "(<bool> ? {'a': <int>} : <map>).a",
        "<ints>.filter($int, <bool>).size()", "<ints>.map($int, <int>)[0]", "<ints>.reverse()[0]",
    ),
    "uint": (*_ARITHMETIC["uint"], "<uint> % <uint>", "uint(<int>)", "uint(<double>)", "uint(<string>)", "<bool> ? <uint> : <uint>", "(<uint>)"),
    "double": (*_ARITHMETIC["double"], "-<double>", "double(<int>)", "double(<string>)", "double(<uint>)", "<quantity>.asApproximateFloat()", "(<double>)", "[<double>, <double>].max()"),
    "string": (
        "<string> + <string>", "string(<int>)", "string(<double>)", "string(<uint>)", "string(<bool>)", "string(<bytes>)", "string(<duration>)", "string(<timestamp>)", "string(<dyn>)",
        "<bool> ? <string> : <string>", "<strings>[<int>]", "<strings>.join(<string>)", "<strings>.join()", "<string>.lowerAscii()", "<string>.upperAscii()", "<string>.trim()",
        "<string>.replace(<string>, <string>)", "<string>.substring(<int>)", "<string>.substring(0, <int>)", "<string>.charAt(<int>)", "<string>.find('[a-z]+')", "<strings>.max()",
        "<string>.find(<string>)", "'%s-%d'.format([<string>, <int>])", "'%s'.format([<dyn>])", "'%s'.format([<ints>])", "'%.2f'.format([<double>])", "cel.bind($string, <string>, <string>)",
        "device.attributes[<driver>].?model.orValue(<string>)", "<string>.split(',')[0]", "(<string>)", "<dyn> + <string>", "strings.quote(<string>)", "<string>.reverse()",
    ),
    "bytes": ("<bytes> + <bytes>", "bytes(<string>)", "(<bytes>)", "<bool> ? <bytes> : <bytes>"),
    "duration": ("<duration> + <duration>", "<duration> - <duration>", "<timestamp> - <timestamp>", "-<duration>", "duration(<string>)", "duration('1m')"),
    "timestamp": ("<timestamp> + <duration>", "<duration> + <timestamp>", "<timestamp> - <duration>", "timestamp(<int>)", "timestamp(<string>)"),
    "ints": (
        "<ints> + <ints>", "[<int>]", "[<int>, <int>]", "<ints>.map($int, <int>)", "<ints>.filter($int, <bool>)", "<ints>.map($int, <bool>, <int>)", "<strings>.map($string, <int>)",
        "<bool> ? <ints> : <ints>", "<ints>.transformList($int, $int, <int>)", "<strings>.transformList($int, $string, <bool>, <int>)", "[?<ints>.last(), <int>]", "<ints>.reverse()",
        "<ints>.sort()", "<ints>.distinct()", "<ints>.slice(0, <int>)", "lists.range(3)", "[<ints>, <ints>].flatten()", "<ints>.sortBy($int, <int>)", "dyn(<ints>)",
        "{<!string>: <int>}.transformList($string, $int, <int>)", "<strings>.sortBy($string, <int>).map($string, <int>)",
    ),
    "strings": (
        "<strings> + <strings>", "[<string>]", "[<string>, <string>]", "<strings>.map($string, <string>)", "<strings>.filter($string, <bool>)", "<ints>.map($int, <string>)",
        "<string>.split(<string>)", "<string>.findAll('[a-z]')", "<strings>.sort()", "<strings>.distinct()", "{<!string>: <int>}.map($string, <string>)", "<strings>.slice(<int>, <int>)",
    ),
    "map": (
        "{<!string>: <int>}", "{<!string>: <int>, <!string>: <int>}", "{?'a': optional.of(<int>)}", "<bool> ? <map> : <map>", "<map>.transformMap($string, $int, <int>)",
        "{<!string>: <int>}.transformMap($string, $int, <bool>, <int>)", "<strings>.transformMapEntry($int, $string, {<!string>: <int>})", "{'a': <int>, ?<!string>: <ints>.first()}",
    ),
    "quantity": (
        "quantity(<string>)", "quantity('100Mi')", "<quantity>.add(<quantity>)", "<quantity>.sub(<int>)", "device.capacity[<driver>].<name>", "device.capacity[<driver>].?<name>.orValue(<quantity>)",
        "<bool> ? <quantity> : <quantity>", "cel.bind($quantity, <quantity>, <quantity>)",
    ),
    "semver": ("semver(<string>)", "semver('0.1.0')", "semver(<string>, true)", "<bool> ? <semver> : <semver>"),
    "optional": (
        "optional.of(<int>)", "optional.ofNonZeroValue(<int>)", "<map>[?<string>]", "<ints>[?<int>]", "<map>.?<name>", "<optional>.or(<optional>)", "<optional>.optMap($int, <int>)",
        "<optional>.optFlatMap($int, <optional>)", "optional.of(<map>).<name>", "optional.of(<ints>)[<int>]", "<ints>.first()", "<ints>.last()", "<bool> ? <optional> : <optional>",
        "{'a': <map>}.?a.<name>", "{'a': <map>}.?<name>.?a", "optional.of(<dyn>)", "<dyn>.?<name>", "optional.unwrap([<optional>, <optional>]).first()",
    ),
    "dyn": (
        "device.attributes[<driver>].<name>", "device.attributes[<driver>][<string>]", "device.attributes[<driver>].?<name>.value()", "dyn(<int>)", "dyn(<string>)", "dyn(<double>)", "dyn(<uint>)",
        "dyn(<ints>)", "dyn(<map>)", "dyn(<bool>)", "dyn(<quantity>)", "dyn(<semver>)", "dyn(<bytes>)", "dyn(<optional>)", "<bool> ? <dyn> : <int>", "<dyn>[<int>]", "<dyn>.<name>", "<dyn>[<dyn>]", "<dyn> + <dyn>",
        "(<bool> ? <dyn> : <dyn>).<name>", "dyn(<strings>)[<int>]", "<dyn>.size()", "<dyn>.max()", "<dyn>.filter($dyn, <bool>)", "<dyn>.map($dyn, <int>)", "dyn(<kind>)", "dyn(<duration>)", "-<dyn>", "<dyn>.sum()",
        "<dyn>.first().value()", "<dyn>.sort()", "<dyn>.reverse()", "<dyn>.flatten()", "<dyn>.indexOf(<dyn>)",
    ),
    "null": ("null", "dyn(null)"),
    "kind": ("type(<dyn>)", "type(<int>)", "type(<ints>)", "type(<kind>)", "bool", "google.protobuf.Duration", "type(<quantity>)"),
    "name": LEAVES["name"],
    "driver": LEAVES["driver"],
}  # fmt: skip
