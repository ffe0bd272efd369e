"""Written selectors that call the functions of Kubernetes and of CEL's extensions, each for one rule."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

_OF_TEXTS = (
    "'héllo'.charAt(1) == 'é'", "'abc'.charAt(3) == ''", "'abc'.charAt(4) == ''", "'abc'.charAt(-1) == ''",
    "'tacocat'.indexOf('a') == 1", "'tacocat'.indexOf('a', 2) == 5", "'tacocat'.indexOf('', 99) == 7",
    "'tacocat'.indexOf('', 3) == 3", "'tacocat'.indexOf('t', 7) == -1", "'tacocat'.indexOf('t', 8) == -1",
    "'abc'.indexOf('a', -1) == 0", "'abc'.lastIndexOf('a', 0) == 0", "'abc'.indexOf('a', 0) == 0",
    "'ééabc'.indexOf('a') == 2", "'tacocat'.lastIndexOf('a') == 5",
    "'tacocat'.lastIndexOf('a', 4) == 1", "'tacocat'.lastIndexOf('a', 5) == 5",
    "'tacocat'.lastIndexOf('cat', 4) == 4", "'tacocat'.lastIndexOf('cat', 3) == -1",
    "'tacocat'.lastIndexOf('') == 7", "'tacocat'.lastIndexOf('', 3) == 3", "'abc'.lastIndexOf('', 9) == 3",
    "'tacocat'.lastIndexOf('t', 7) == -1", "'tacocat'.lastIndexOf('t', 6) == 6", "''.lastIndexOf('a') == -1",
    "'abc'.lastIndexOf('a', -1) == 0", "'TacoCÆt İ'.lowerAscii() == 'tacocÆt İ'",
    "'tacocæt ß'.upperAscii() == 'TACOCæT ß'", "'AZ[@`az{'.lowerAscii() == 'az[@`az{'",
    "'AZ[@`az{'.upperAscii() == 'AZ[@`AZ{'", "'hello hello'.replace('he', 'we') == 'wello wello'",
    "'hello hello'.replace('he', 'we', 1) == 'wello hello'", "'abc'.replace('', '_') == '_a_b_c_'",
    "'abc'.replace('', '_', 2) == '_a_bc'", "'aaa'.replace('a', 'b', 2) == 'bba'",
    "'abc'.replace('a', 'x', 0) == 'abc'", "'aa'.replace('a', 'x', -1) == 'xx'",
    "'a b c'.split(' ') == ['a', 'b', 'c']", "'a b c'.split(' ', 2) == ['a', 'b c']",
    "'a b c'.split(' ', 1) == ['a b c']", "'a b c'.split(' ', 0) == []",
    "'a b c'.split(' ', -1) == ['a', 'b', 'c']", "'a b c'.split(' ', 9) == ['a', 'b', 'c']",
    "'abc'.split('') == ['a', 'b', 'c']", "'abc'.split('', 2) == ['a', 'bc']",
    "'abc'.split('', 3) == ['a', 'b', 'c']", "'abc'.split('', 9) == ['a', 'b', 'c']", "''.split(',') == ['']",
    "''.split('') == []", "'tacocat'.substring(4) == 'cat'", "'tacocat'.substring(0, 4) == 'taco'",
    "'tacocat'.substring(7) == ''", "'abc'.substring(2, 2) == ''", "'abc'.substring(4) == ''",
    "'abc'.substring(2, 1) == ''", "'abc'.substring(0, 4) == 'abc'", "'abc'.substring(0, 3) == 'abc'",
    "'abc'.substring(-1) == 'abc'", "'éab'.substring(1, 2) == 'a'",
    "' \\t\\u00a0\\u2003x\\u200b\\n'.trim() == 'x\\u200b'", "'\\x1cx'.trim() == 'x'",
    "'\\v\\f\\r\\u0085\\u1680\\u2028\\u2029\\u202f\\u205f\\u3000x'.trim() == 'x'",
    "'\\u2000\\u200ax'.trim() == 'x'", "'\\ufeffx'.trim() == 'x'",
    "strings.quote('a\"\\n\\x01é') == '\"a\\\\\"\\\\n\\x01é\"'",
    "strings.quote('\\a\\b\\f\\n\\r\\t\\v\\\\\\'') == '\"\\\\a\\\\b\\\\f\\\\n\\\\r\\\\t\\\\v\\\\\\\\\\'\"'",
    "['a', 'b'].join() == 'ab'", "['a', 'b'].join(', ') == 'a, b'", "[].join(', ') == ''",
    "[dyn('a'), dyn(1)].join() == 'a1'", "['é', 'b'].join('é') == 'éé' + 'b'", "'éab'.reverse() == 'baé'",
    "'aaaaaaaaaaa'.lowerAscii() == ''", "'aaaaaaaaaaa'.upperAscii() == ''", "'aaaaaaaaaaa'.trim() == ''",
    "'aaaaaaaaaaa'.split('b') == []", "['aaaaaaaaaaa', 'b'].join() == ''", "'aaaaaaaaaaa'.charAt(1) == ''",
    "'ééééééééééé'.indexOf('b') == 0", "'aaaaaaaaa'.lastIndexOf('b') == 0",
    "'aaaaaaaaaaa'.substring(3) == ''", "'aaaaaaaaaaa'.replace('a', 'bbbbbbb') == ''",
    "strings.quote('aaaaaaaaaaa') == ''", "'%s%s%s%s%s%s'.format(['a', 'a', 'a', 'a', 'a', 'a']) == ''",
    "'aaaaaaaaaaa'.indexOf('a', 3) == 3", "'aaaaaaaaaaa'.split('a', 3) == []", "'abc'.charAt('a') == ''",
    "dyn(1).charAt(1) == ''", "'abc'.substring(1.0) == ''", "'abc'.split(1) == []", "'abc'.trim(1) == ''",
)  # fmt: skip
"""Functions of strings; the last are there for what they cost."""

_FORMATTED = (
    ("%s, %s", "'a', 1", "a, 1"), ("100%%", "", "100%"), ("%s", "", ""), ("%s", "1, 2", "1"),
    ("%%%s%%", "1", "%1%"), ("%d %d", "-5, 5u", "-5 5"), ("%d", "9223372036854775807", "9223372036854775807"),
    ("%d", "18446744073709551615u", "18446744073709551615"), ("%f", "1234567.891", "1,234,567.891000"),
    ("%f", "999.5", "999.500000"), ("%.0f", "2.5", "2"), ("%.0f", "3.5", "4"), ("%.2f", "-0.001", "-0.00"),
    ("%f", "-0.0", "0.000000"), ("%f %f", "'NaN', '-Infinity'", "NaN -∞"), ("%f", "'Infinity'", "∞"),
    ("%f", "1.0 / 0.0", "∞"), ("%f", "-1.0 / 0.0", "-∞"), ("%f", "0.0 / 0.0", "NaN"),
    ("%e", "1234567.891", "1.234568\u00d710⁰⁶"), ("%e", "1e100", "1.000000\u00d710¹⁰⁰"),
    ("%.20e|%.3e", "0.1, 1.0 / 0.0", "      1.000000\u00d710⁻⁰¹|  ∞"), ("%e", "'NaN'", "   NaN"),
    ("%e", "-0.0", "0.000000\u00d710⁰⁰"), ("%b %b", "-5, true", "-101 1"), ("%b", "false", "0"),
    ("%b", "5u", "101"), ("%x %X %x", "-255, 'é', b'\\xff'", "-ff C3A9 ff"), ("%X", "255u", "FF"),
    ("%o", "8", "10"), ("%o", "8u", "10"), ("%s", "5u", "5"), ("%s", "true", "true"), ("%s", "null", "null"),
    ("%s", "b'ab'", "ab"), ("%s", "int", "int"), ("%s", "type(1.0)", "double"), ("%s", "[]", "[]"),
    ("%s", "{}", "{}"), ("%s %s", "1e6, 0.5", "1e+06 0.5"), ("%s %s", "123456.5, 1e-5", "123456.5 1e-05"),
    ("%s %s", "1e5, 100000.0", "100000 100000"), ("%s", "1234567.25", "1.23456725e+06"),
    ("%s", "-0.0001", "-0.0001"), ("%s", "0.0", "0"), ("%s", "1.0 / 0.0", "+Inf"), ("%s", "-1.0 / 0.0",
    "-Inf"),
    ("%s", "0.0 / 0.0", "NaN"),
    ("%s", "[dyn(1), 'a\\n', b'b', 2.5, null, true]", '[1, "a\\\\n", b"b", 2.500000, null, true]'),
    ("%s", "[1.0 / 0.0, 5.0]", '["+Inf", 5.000000]'), ("%s", "[dyn(5u), int, [1]]", "[5, int, [1]]"),
    ("%s", "{dyn('b'): dyn(1), 'a': [1], 2: 'x', true: 1u}", '{"a":[1], "b":1, 2:"x", true:1}'),
    ("%s %s", "duration('1.5s'), timestamp(0)", "1.5s 1970-01-01T00:00:00Z"),
    ("%s", "[duration('-0.000000001s')]", '[duration("-0.000000001s")]'),
    ("%s", "[timestamp('1970-01-01T01:30:00.1+01:30')]", '[timestamp("1970-01-01T01:30:00.1+01:30")]'),
    ("%s", "['\\u200b\\x01é\\U0001F600']", '["\\\\u200b\\\\x01é\\U0001F600"]'),
    ("%s", "['\\a\\b\\f\\n\\r\\t\\v\"\\\\']", '["\\\\a\\\\b\\\\f\\\\n\\\\r\\\\t\\\\v\\\\"\\\\\\\\"]'),
    ("%.3s", "'abcdef'", "abcdef"), ("%.3d", "5", "5"), ("%.1f|%s", "0.25, 'b'", "0.2|b"), ("%", "1", ""),
    ("%.", "1.0", ""), ("%.f", "1.0", "1"), ("%y", "1", ""), ("%5d", "1", ""), ("%s %s", "'a'", ""),
    ("%d", "1.0", ""), ("%d", "true", ""), ("%d", "'1'", ""), ("%f", "1", ""), ("%e", "'x'", ""),
    ("%f", "'Infinity '", ""), ("%b", "'a'", ""), ("%x", "true", ""), ("%x", "1.5", ""), ("%o", "1.0", ""),
    ("%s", "b'\\xff'", ""), ("%s", "ip('1.2.3.4')", ""), ("%s", "[ip('1.2.3.4')]", ""),
    ("%s", "{1.5: 1}", ""), ("%s", "optional.of(1)", ""), ("%s", "[optional.of(1)]", ""),
    ("%s", "[b'\\xff']", ""), ("é%sé", "'é'", "ééé"), ("%s\\n%s", "1, 2", "1\\n2"),
)  # fmt: skip
"""A text to format, its arguments, and the result; an empty result where it is an error, or another one."""

_OF_LISTS = (
    "['a', 'b', 'b'].isSorted()", "[2, 1].isSorted()", "[].isSorted()", "[1.0, 0.0 / 0.0].isSorted()",
    "[false, true].isSorted()", "[null].isSorted()", "[dyn(1), dyn('a')].isSorted()",
    "[0.5, 1.0].sum() == 1.5",
    "[1u, 2u].sum() == 3u", "[].sum() == 0", "[duration('1s'), duration('2s')].sum() == duration('3s')",
    "['a'].sum() == 'a'", "[9223372036854775807, 1].sum() == 0", "[18446744073709551615u, 1u].sum() == 0u",
    "[dyn(1), dyn('a')].sum() == 1", "[dyn(1), dyn(2.0)].sum() == 3",
    "[duration('9223372036s'), duration('9223372036s')].sum() == duration('0s')",
    "[timestamp(1), timestamp(2)].max() == timestamp(2)", "['a', 'c', 'b'].max() == 'c'",
    "[2, 1, 3].min() == 1", "[1.0, 0.0 / 0.0].min() == 1.0", "[0.0 / 0.0, 1.0].max() == 1.0",
    "[].min() == 1", "[].max() == 1", "[dyn(1), dyn(null)].max() == 1", "[dyn(1), dyn(2.0)].max() == 2",
    "[1, 2, 2, 3].indexOf(2) == 1", "[1, 2, 2, 3].lastIndexOf(2) == 2", "[1, 2].indexOf(3) == -1",
    "[1, 2].lastIndexOf(3) == -1", "[1, 2].indexOf(dyn(2.0)) == 1", "[quantity('1')].indexOf(dyn(1)) == -1",
    "[1, 2].includes(2)", "[1, 2].includes(3)", "dyn('a').includes('a')", "dyn('a').includes(1)",
    "dyn(true).includes(1)", "[1, 2, 3, 4].slice(1, 3) == [2, 3]", "[1, 2].slice(0, 2) == [1, 2]",
    "[1, 2].slice(1, 3) == [2]", "[1, 2].slice(-1, 1) == [1]", "[1, 2].slice(2, 2) == []",
    "[[1], [2, 3]].flatten() == [1, 2, 3]",
    "[dyn(1), dyn([dyn([2]), dyn(3)])].flatten(1) == [dyn(1), dyn([2]), dyn(3)]",
    "[dyn(1), dyn([dyn([2]), dyn(3)])].flatten(2) == [1, 2, 3]",
    "[dyn(1), dyn([2])].flatten(0) == [dyn(1), dyn([2])]",
    "[[1]].flatten(-1) == [1]", "lists.range(0) == []", "[1, 2, 3].reverse() == [3, 2, 1]",
    "[dyn(1), dyn(2.0), dyn(2), dyn(true)].distinct() == [dyn(1), dyn(2.0), dyn(true)]",
    "[[1], [1]].distinct() == [[1]]",
    "[duration('2s'), duration('1s')].sort() == [duration('1s'), duration('2s')]",
    "[dyn(1), dyn('a')].sort() == [dyn(1)]", "[true, false].sort() == [false, true]",
    "[2u, 1u].sort() == [1u, 2u]",
    "['a', 'bb', 'c'].sortBy(x, size(x)) == ['a', 'c', 'bb']", "[].sortBy(x, x) == []",
    "[1, 2].sortBy(x, dyn([x])) == [1, 2]", "[3, 1, 2].sortBy(x, null) == [1]",
    "[1, 2].first() == optional.of(1)",
    "[].last() == optional.none()", "sets.contains([1, 2], [1.0])",
    "sets.contains([dyn(1), dyn(2)], [dyn(1.0)])",
    "sets.contains([dyn(1)], [dyn(true)])", "sets.contains([1], [1, 2])", "sets.contains([], [])",
    "sets.equivalent([1, 1, 2], [2, 1])", "sets.equivalent([1], [1, 2])", "sets.equivalent([1, 2], [1])",
    "sets.intersects([1, 2], [2, 3])", "sets.intersects([], [])", "sets.contains([1, 2, 3], [1, 2])",
    "sets.equivalent([1, 2, 3], [1, 2])", "['aaaaaaaaaaaaaaaaaaaaaaaaa', 'b'].max() == ''",
    "dyn('aaaaaaaaaaaaaaaaaaaaaaaaa').includes('b')", "[[1], [2]].flatten(3) == [1, 2]",
    "['a', 'b'].sortBy(x, x) == []", "[].distinct() == []", "['a', 'b', 'c'].distinct() == []",
)  # fmt: skip

_ADDRESSES = (
    "", "1.2.3", "01.2.3.4", "256.1.1.1", "::ffff:1.2.3.4", "fe80::1%eth0", "1::2::3", "1.2.3.4/8", "é",
    "0.0.0.0", "::", "127.1.2.3", "::1", "224.0.0.9", "224.0.1.9",  # noqa: S104 - an address to look at
    "ff12::1", "ff05::1", "169.254.1.1",
    "febf::1", "10.0.0.1", "fd00::1", "255.255.255.255", "2001:DB8:0::1",
)  # fmt: skip
_NETWORKS = ("1.2.3.4", "1.2.3.4/33", "::1/129", "1.2.3.4/08", "1.2.3.4/+8", "/8", "1.2.3.4/", "10.1.2.3/16")
_OF_ADDRESSES = (
    "ip.isCanonical('2001:db8::1')", "ip('2001:db8::1') == ip('2001:DB8:0::1')", "ip('::1').family() == 6",
    "string(ip('2001:DB8:0::1')) == '2001:db8::1'", "string(cidr('10.1.2.3/16')) == '10.1.2.3/16'",
    "string(cidr('10.1.2.3/16').masked()) == '10.1.0.0/16'", "cidr('10.1.2.3/16') == cidr('10.1.0.0/16')",
    "cidr('10.1.2.3/16').ip() == ip('10.1.2.3')", "cidr('10.1.2.3/16').prefixLength() == 16",
    "cidr('0.0.0.0/0').containsIP('::1')", "dyn(ip('1.2.3.4')) == '1.2.3.4'",
    "cidr('10.0.0.0/8').containsIP('x')", "cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
    "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", "cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')",
    "cidr('10.0.0.0/8').containsCIDR(cidr('11.0.0.0/16'))", "cidr('10.0.0.0/8').containsCIDR('x')",
    "cidr('::1/128').containsIP('::1')", "cidr('::1/128').containsCIDR(cidr('::1/64'))",
    "cidr('::/0').containsIP(ip('::1'))", "cidr('::/0').containsCIDR(cidr('::/0'))",
)  # fmt: skip

_URLS = (
    "https://u:p@h.example:80/a%20b?q=1", "HTTP://h", "http://[::1]:80/", "http://[fe80::1%25en0]/",
    "/a b/é", "/a%2fb", "mailto:a@b", "*", "http:///x", "ftp://a:1:2/", "", "rel", ":x", "1http://x",
    "http://a b/", "http://a%41/", "http://h/%zz", "http://h\\x01/", "http://a:1:2/", "http://a:x/",
    "http://[::1", "http://x[::1]/", "http://[1.2.3.4]/", "http://u\\\\@h/", "http://[::1%25]/",
    "http://h/#%41", "http://h/?a#%zz", "http://h/?a=1&a=%20+2&b&;x=1&c=%zz&=v", "http://h/12345678",
)  # fmt: skip
_OF_URLS = (
    "url('HTTP://h/%41') == url('http://h/%41')", "url('http://h/') == url('http://h')",
    "dyn(url('http://h/')) == 'http://h/'", "url('http://u:p@h/#a') == url('http://u:p@h/#a')",
)  # fmt: skip

_FORMATS = (
    ("dns1123Label", ("a", "my-name", "a" * 63, "", "A", "a.b", "a-", "a" * 64, "a\\n")),
    ("dns1123Subdomain", ("a.b", "1.2", "a..b", ".a", "A.b", "a" * 254)),
    ("dns1035Label", ("a1", "1a", "a.b", "a" * 64)),
    ("qualifiedName", ("a.b/C_d", "x", "", "/x", "a/", "a/b/c", "A_/x", "a" * 64, "/", "a" * 63,
    "b/" + "a" * 64)),
    ("dns1123LabelPrefix", ("a-", "a--", "-", "AB-", "é-")),
    ("dns1123SubdomainPrefix", ("a.b-", "a.-b")),
    ("dns1035LabelPrefix", ("a-", "1b-")),
    ("labelValue", ("", "A_b.c", "_", "a b", "a" * 64)),
    ("uri", ("http://a/b", "/x", "x", "http://a b", "/%zz")),
    ("uuid", ("123e4567-e89b-12d3-A456-426614174000", "0" * 32, "x", "0" * 31)),
    ("byte", ("aGVsbG8=", "aGVs", "", "a===", "a")),
    ("date", ("2020-02-29", "0000-02-29", "2021-02-29", "1900-02-29", "2021-1-1", "2021-13-01",
        *(f"2021-{month:02}-{day}" for month in range(1, 13) for day in (28, 29, 30, 31, 32)))),
    ("datetime", (
        "2021-01-01T23:59:59.5+01:00", "2021-01-01t00:00:00z", "2021-01-01", "2021-01-01T23:60:00Z",
        "2021-01-01T23:59:60Z", "2021-01-01T00:00:00Zt", "2021-01-01T00:00:00ZT1", "2021-02-29T00:00:00Z",
        "2021-01-01T24:00:00Z",
        "2021-01-01T00:00:60Z", "2021-01-01T00:00:00",
    )),
)  # fmt: skip

_VERSIONS = (
    "1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta",
    "1.0.0",
    "1.0.1", "1.9.0", "1.10.0", "2.0.0",
)  # fmt: skip
_READ_VERSIONS = (
    "", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3+", "1.2.3-01", "1.2.3+a..b", "1.2.3.4", "1.2.3-é",
    "18446744073709551616.0.0", "18446744073709551615.0.0", "v01.02", "00.00.00-x", "1.2-rc1",
    "12.34.56-rc.1+b",
)  # fmt: skip
_OTHERS = (
    "semver('1.0.0+a') == semver('1.0.0+b')", "quantity('1500m').isLessThan(quantity('2'))",
    "quantity('2').isLessThan(quantity('2'))", "quantity('2').isGreaterThan(quantity('2'))",
    "dyn(quantity('1')) == 1", "dyn(1) == quantity('1')",
    "quantity('1Gi').sub(quantity('1Mi')).asInteger() == 1",
    "quantity('1Gi').add(-1).asInteger() == 1073741823", "quantity('1Ki').isInteger()",
    "quantity('1.5Ki').isInteger()", "quantity('100m').asInteger() == 0", "sign(quantity('-1m')) == -1",
    "sign(quantity('0')) == 0", "sign(quantity('1n')) == 1", "quantity('1500m').asApproximateFloat() == 1.5",
    "isQuantity('80GB')", "sign(quantity('12345678901Ki')) == 1", "'abc'.find('x') == ''",
    "'GPU-é'.find('\\\\pL+$') == 'é'", "'123 abc 456'.findAll('[0-9]*') == ['123', '', '', '', '', '456']",
    "'123 abc 456'.findAll('[0-9]+', 1) == ['123']", "'123 abc 456'.findAll('[0-9]+', 0) == []",
    "'123 abc 456'.findAll('[0-9]+', -1) == ['123', '456']", "'ab'.findAll('') == ['', '', '']",
    "'x'.findAll('y') == []", "'aaaaaaaaaaaaaaaaaaaa'.find('[a-z]+xy') == ''", "'a'.find('a**') == ''",
    "'a'.find('(?=a)') == ''", "'a'.find('\\\\1') == ''", "'a'.find('\\\\C') == ''",
    "'a'.find('a{1001}') == ''",
    "'a'.find('(a{500}){500}') == ''", "!format.named('email').hasValue()",
)  # fmt: skip


def _on_values() -> Iterator[str]:
    """The functions that read a text, on texts that are right and wrong."""
    for text, arguments, result in _FORMATTED:
        yield f"'{text}'.format([{arguments}]) == '{result}'"
        # A text that is no literal is looked at only when the selector runs.
        yield f"('{text}' + '').format([{arguments}]) == '{result}'"
    for address in _ADDRESSES:
        yield f"isIP('{address}') && ip('{address}') == ip('{address}')"
        yield f"ip.isCanonical('{address}')"
        for kind in ("Unspecified", "Loopback", "LinkLocalMulticast", "LinkLocalUnicast", "GlobalUnicast"):
            yield f"ip('{address}').is{kind}()"
    yield from (f"isCIDR('{network}') || cidr('{network}').prefixLength() == 1" for network in _NETWORKS)
    for url in _URLS:
        yield f"isURL('{url}')"
        parts = "[u.getScheme(), u.getHost(), u.getHostname(), u.getPort(), u.getEscapedPath()]"
        yield f"cel.bind(u, url('{url}'), '%s'.format([[{parts}, [u.getQuery()]]]) == '')"
    for name, texts in _FORMATS:
        yield f"format.{name}() == format.named('{name}').value()"
        for text in texts:
            yield f"format.named('{name}').value().validate('{text}').hasValue()"
    for lower, higher in pairwise(_VERSIONS):
        yield f"semver('{lower}').isLessThan(semver('{higher}'))"
        yield f"semver('{higher}').isGreaterThan(semver('{lower}'))"
        yield f"semver('{higher}').compareTo(semver('{lower}')) == 1"
    for version in _READ_VERSIONS:
        yield f"isSemver('{version}') || semver('{version}').major() == 12"
        yield f"isSemver('{version}', true)"
        yield f"cel.bind(v, semver('{version}', true), [v.major(), v.minor(), v.patch()] == [1, 2, 0])"


OF_FUNCTIONS = (
    *_OF_TEXTS, *_OF_LISTS, *_OF_ADDRESSES, *_OF_URLS, *_OTHERS, *_on_values(),
    'quantity("1Gi").compareTo(quantity("1024Mi")) == 0', 'quantity("x") == quantity("1")',
    'isQuantity("1Gi") && !isQuantity("x")', 'quantity("1").add(1) == quantity("2")',
    'quantity("1").add(quantity("1")).sub(quantity("2")).sign() == 0',
    'quantity("1") == quantity("1").add(0)', 'quantity("1").add(0) == quantity("1")',
    'type(quantity("1")) == kubernetes.Quantity', 'type(semver("1.0.0")) == kubernetes.Semver',
    "type(optional.none()) == optional_type", 'semver("1.2.3").minor() == 2',
    'semver("v1.2", true).patch() == 0', 'semver("v1.2").patch() == 0', 'isSemver("1.2.3")',
    '"abc".charAt(1) == "b"', '"abc".charAt(7) == "b"', '"a,b".split(",") == ["a", "b"]',
    '["a", "b"].join("-") == "a-b"', '"abc".indexOf("c") == 2', '"ABC".lowerAscii() == "abc"',
    '"abc".replace("b", "x") == "axc"', '"abc".substring(1) == "bc"', '" a ".trim() == "a"',
    '"%d %s".format([1, "a"]) == "1 a"', '"%d %s".format([1]) == "1 a"', 'strings.quote("a") == "\\"a\\""',
    '"abc123".find("[0-9]+") == "123"', '"abc123".find("(") == "123"',
    '"a1b2".findAll("[0-9]") == ["1", "2"]', "[1, 2, 3].sum() == 6", "[3, 1, 2].min() == 1",
    "[1.5, 2.5].sum() == 4.0", "[].sum() == 0", "[1, 2].isSorted()", "[1, 2, 1].indexOf(1) == 0",
    "[1, 2, 1].lastIndexOf(1) == 2", "[1, 2].includes(2)", "dyn(1).includes(1)",
    "[1, 2, 3].slice(1, 2) == [2]", "[1, 2, 3].slice(2, 1) == [2]", "[[1], [2]].flatten() == [1, 2]",
    "[[[1]], [[2]]].flatten(2) == [1, 2]", "[3, 1, 2].sort() == [1, 2, 3]",
    '["b", "a"].sort() == ["a", "b"]', "[3, 1, 2].sortBy(x, -x) == [3, 2, 1]",
    "lists.range(3) == [0, 1, 2]", "lists.range(-3) == [0, 1, 2]", "[1, 2].reverse() == [2, 1]",
    "[1, 1, 2].distinct() == [1, 2]", "[1, 2].first().value() == 1", "[1, 2].last().value() == 2",
    "[].first().hasValue()", "optional.unwrap([optional.of(1), optional.none()]) == [1]",
    "[optional.of(1), optional.none()].unwrapOpt() == [1]", "sets.contains([1, 2], [1])",
    "sets.equivalent([1, 2], [2, 1])", "sets.intersects([1, 2], [3])", 'ip("192.168.0.1").family() == 4',
    'isIP("x")', 'cidr("10.0.0.0/8").containsIP("10.1.2.3")', 'ip("::1").isLoopback()',
    'ip.isCanonical("::1")', 'url("https://a.example.com:80/x?y=z").getHost() == "a.example.com:80"',
    'isURL("x")', 'format.dns1123Label().validate("abc") == optional.none()',
    '!format.dns1123Label().validate("ABC").hasValue()', 'format.named("uuid").hasValue()',
    "math.greatest(1, 2) == 2", 'base64.encode(b"x") == "eA=="', 'regex.replace("a", "a", "b") == "b"',
    "1.quantity() == 1", 'authorizer.path("/x").check("get").allowed()',
)  # fmt: skip
