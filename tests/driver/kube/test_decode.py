"""What a tenant put into one claim keeps nobody from reading the others."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.kube.decode import DEEPEST, decode_json

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just('"]}[{\\'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_nested_little_is_read_as_it_is(value: Any) -> None:
    assert decode_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"]":', b"}]")])
@given(VALUES)
def test_what_is_nested_deeply_is_null_and_all_beside_it_is_there(
    begin: bytes, end: bytes, value: Any
) -> None:
    around = json.dumps(value).encode()
    deep = begin * 4000 + b"1" + end * 4000
    read = decode_json(b'{"items":[' + around + b"," + deep + b"," + around + b"]}")

    first, inner, last = read["items"]
    assert (first, last) == (value, value)
    depth = 2
    while inner is not None:
        (inner,) = inner if isinstance(inner, list) else inner.values()
        depth += 1
    assert depth == DEEPEST


@pytest.mark.parametrize("key", ["", "[" * 200, "]" * 200, '{"}[' * 200, "\\" * 3])
def test_the_deepest_that_is_read_is_the_same_whatever_strings_hold(key: str) -> None:
    def nested(value: object, levels: range) -> object:
        for level in levels:
            value = [value] if level % 2 else {key: value}
        return value

    deepest = nested(1, range(DEEPEST))
    assert decode_json(json.dumps(deepest).encode()) == deepest
    deeper = nested(1, range(DEEPEST + 1))
    assert decode_json(json.dumps(deeper).encode()) == nested(None, range(1, DEEPEST + 1))


def test_a_number_of_many_digits_is_read_as_the_api_server_does() -> None:
    assert decode_json(b"[" + b"1" * 5000 + b", 7]") == [float("inf"), 7]


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 4000, b"]" * 4000, b"nul"])
def test_what_is_no_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json has several
        decode_json(data)
