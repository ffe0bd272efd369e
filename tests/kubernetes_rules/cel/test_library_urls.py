"""URLs in selectors behave as in Kubernetes, which reads them with Go's net/url."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_rules.cel.library_urls import OVERLOADS, parse
from kubernetes_rules.cel.types import CelError
from kubernetes_rules.cel.values import equal
from tests.kubernetes_rules.cel.library_calls import call, cost

PARTS = ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath")


def run(name: str, *arguments: Any) -> Any:
    return call(OVERLOADS, name, *arguments)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("https://u:p@h.example:80/a%20b?q=1", ("https", "h.example:80", "h.example", "80", "/a%20b")),
        ("HTTP://h", ("http", "h", "h", "", "")),
        ("http://[::1]:80/", ("http", "[::1]:80", "::1", "80", "/")),
        ("http://[fe80::1%25en0]/", ("http", "[fe80::1%en0]", "fe80::1%en0", "", "/")),
        ("/a b/é", ("", "", "", "", "/a%20b/%C3%A9")),
        ("/a%2fb", ("", "", "", "", "/a%2fb")),
        ("mailto:a@b", ("mailto", "", "", "", "")),
        ("*", ("", "", "", "", "*")),
        ("http:///x", ("http", "", "", "", "/x")),
        ("ftp://a:1:2/", ("ftp", "a:1:2", "a:1", "2", "/")),
    ],
)
def test_a_url_has_parts(text: str, parts: tuple[str, ...]) -> None:
    assert tuple(run(name, parse(text)) for name in PARTS) == parts


@pytest.mark.parametrize(
    "text",
    ["", "rel", ":x", "1http://x", "http://a b/", "http://a%41/", "http://h/%zz", "http://h\x01/", "http://a:1:2/",
     "http://a:x/", "http://[::1", "http://x[::1]/", "http://[1.2.3.4]/", "http://u\\@h/", "http://[::1%25]/"],
)  # fmt: skip
def test_what_is_no_absolute_url_is_refused(text: str) -> None:
    assert not run("isURL", text)
    with pytest.raises(CelError):
        run("url", text)


def test_a_fragment_must_be_well_formed_only_to_be_read() -> None:
    assert run("isURL", "http://h/#%41")
    with pytest.raises(CelError):
        run("url", "http://h/?a#%zz")


def test_a_query_has_lists_of_values_by_key() -> None:
    query = run("getQuery", parse("http://h/?a=1&a=%20+2&b&;x=1&c=%zz&=v"))
    assert query == {"a": ("1", "  2"), "b": ("",), "": ("v",)}


def test_urls_are_equal_when_written_equally_after_normalization() -> None:
    assert equal(parse("HTTP://h/%41"), parse("http://h/%41"))
    assert not equal(parse("http://h/"), parse("http://h"))
    with pytest.raises(CelError):
        equal(parse("http://h/"), "http://h/")


@given(st.text(alphabet="ab:/?#[]@%41&=+;.é \\", max_size=20))
def test_any_text_is_a_url_or_refused(text: str) -> None:
    try:
        url = parse(f"http://h/{text}")
    except CelError:
        return
    again = bytes(url.parts).decode()
    assert bytes(parse(again).parts).decode() == again


def test_reading_a_url_costs_by_its_length_and_checking_it_does_not() -> None:
    assert cost(OVERLOADS, "url", "http://h/12345678") == 2
    assert cost(OVERLOADS, "isURL", "http://h/12345678") == 1
