"""Bodies are read as their types say: one bad object never breaks the clients of a kind."""

from typing import Any

import pytest

from envtest.embedded.schema.decoding import BodyError, Decoder, DecodingError, read_json
from envtest.embedded.schema.types import type_of


def decoded(kind: str, item: dict[str, Any], api_version: str = "v1") -> Any:
    found = type_of(api_version, kind)
    assert found is not None
    return Decoder().decode(item, found)


@pytest.mark.parametrize("text", [b"", b'{"a":NaN}', b'{"a":1e999}', b'{"a" 1}', b"\xff", b"[" * 100_000])
def test_a_broken_body_is_refused(text: bytes) -> None:
    with pytest.raises(BodyError):
        read_json(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2020-01-01T00:00:00.123456Z", "2020-01-01T00:00:00.123456Z"),
        ("2020-01-01T00:00:00.500000+01:00", "2019-12-31T23:00:00.500000Z"),
        ("2020-13-01T00:00:00.000000Z", ""),
        ("2020-01-01T00:00:00Z", ""),
        ("2020-01-01T00:00:00.000000", ""),
    ],
)
def test_a_time_with_microseconds_is_stored_in_utc(text: str, wanted: str) -> None:
    lease = {"spec": {"renewTime": text}}
    if wanted:
        assert decoded("Lease", lease, "coordination.k8s.io/v1")["spec"]["renewTime"] == wanted
    else:
        with pytest.raises(DecodingError):
            decoded("Lease", lease, "coordination.k8s.io/v1")
