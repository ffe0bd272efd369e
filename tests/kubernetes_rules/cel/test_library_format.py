"""Named formats accept and refuse what those of Kubernetes do."""

from __future__ import annotations

import pytest

from kubernetes_rules.cel.library_format import FORMATS, OVERLOADS
from kubernetes_rules.cel.values import Optional, equal
from tests.kubernetes_rules.cel.library_calls import call, cost


def errors(name: str, text: str) -> tuple[str, ...]:
    found = call(OVERLOADS, "validate", FORMATS[name], text)
    assert isinstance(found, Optional)
    return found.value if found.present else ()


@pytest.mark.parametrize(
    ("name", "valid", "invalid"),
    [
        ("dns1123Label", ("a", "my-name", "a" * 63), ("", "A", "a.b", "a-", "a" * 64, "a\n")),
        ("dns1123Subdomain", ("a.b", "1.2"), ("a..b", ".a", "A.b", "a" * 254)),
        ("dns1035Label", ("a1",), ("1a", "a.b")),
        ("qualifiedName", ("a.b/C_d", "x"), ("", "/x", "a/", "a/b/c", "A_/x", "a" * 64)),
        ("dns1123LabelPrefix", ("a-", "a--"), ("-", "AB-", "é-")),
        ("dns1123SubdomainPrefix", ("a.b-",), ("a.-b",)),
        ("dns1035LabelPrefix", ("a-",), ("1b-",)),
        ("labelValue", ("", "A_b.c"), ("_", "a b", "a" * 64)),
        ("uri", ("http://a/b", "/x"), ("x", "http://a b", "/%zz")),
        ("uuid", ("123e4567-e89b-12d3-A456-426614174000", "0" * 32), ("x", "0" * 31)),
        ("byte", ("aGVsbG8=", "aGVs"), ("", "a===", "a")),
        ("date", ("2020-02-29", "0000-02-29"), ("2021-02-29", "1900-02-29", "2021-1-1", "2021-13-01")),
        (
            "datetime",
            ("2021-01-01T23:59:59.5+01:00", "2021-01-01t00:00:00z"),
            ("2021-01-01", "2021-01-01T24:00:00Z", "2021-01-01T00:00:60Z", "2021-01-01T00:00:00"),
        ),
    ],
)
def test_a_format_accepts_and_refuses(name: str, valid: tuple[str, ...], invalid: tuple[str, ...]) -> None:
    assert [text for text in valid if errors(name, text)] == []
    assert [text for text in invalid if not errors(name, text)] == []


def test_each_thing_that_is_wrong_is_told() -> None:
    assert errors("dns1123Label", "a.b") == ("must not contain dots",)
    assert errors("labelValue", "a" * 64) == ("must be no more than 63 bytes",)
    assert errors("dns1035Label", "a" * 64) == ("must be no more than 63 characters",)
    name_rule = (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )
    assert errors("qualifiedName", "/") == (
        "prefix part must be non-empty",
        "name part must be non-empty",
        name_rule,
    )
    assert errors("uri", "/%zz") == ('parse "/%zz": invalid URL escape "%zz"',)


def test_a_format_is_found_by_name_or_called_by_it() -> None:
    for name, form in FORMATS.items():
        found = call(OVERLOADS, "format.named", name)
        assert equal(found.value, call(OVERLOADS, f"format.{name}"))
        assert found.value is form
    assert not call(OVERLOADS, "format.named", "email").present


def test_validation_costs_by_the_size_of_the_expression() -> None:
    assert cost(OVERLOADS, "validate", FORMATS["dns1123Label"], "a") == 8
