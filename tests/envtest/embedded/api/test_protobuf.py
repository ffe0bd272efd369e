"""Typed clients write protobuf, and the objects are the same."""

import pytest

from envtest.embedded.schema.decoding import BodyError, DecodingError
from envtest.embedded.schema.protobuf import CONTENT_TYPE, MAGIC, from_protobuf
from tests.clusters import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import PODS, ask


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    data = b""
    while value >= 0x80:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def message(api_version: str, kind: str, body: bytes) -> bytes:
    return MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, body)


def test_a_pod_is_read_with_its_inline_parts_and_special_types() -> None:
    limits = field(1, field(1, "nvidia.com/gpu") + field(2, field(1, "2")))
    volume = field(1, "v") + field(2, field(1, field(1, "/dev/x")))
    container = field(1, "c") + field(2, "busybox") + field(8, limits)
    spec = field(1, volume) + field(2, container) + field(4, -1)
    metadata = field(1, "p") + field(3, "") + field(8, field(1, 1_700_000_000)) + field(9, b"")
    body = field(1, metadata + field(11, field(1, "app") + field(2, "x"))) + field(2, spec)

    assert from_protobuf(message("v1", "Pod", body)) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": "2023-11-14T22:13:20Z", "labels": {"app": "x"}},
        "spec": {
            "volumes": [{"name": "v", "hostPath": {"path": "/dev/x"}}],
            "containers": [
                {"name": "c", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
            ],
            "terminationGracePeriodSeconds": -1,
        },
    }


def test_bytes_and_raw_json_become_what_json_has() -> None:
    data = field(3, field(1, "k") + field(2, b"\xff\x00"))
    opaque = field(1, "gpu.example.com") + field(2, field(1, b'{"a": [1]}'))
    config = field(2, field(1, field(1, opaque)))

    assert from_protobuf(message("v1", "ConfigMap", data))["binaryData"] == {"k": "/wA="}
    item = from_protobuf(message("resource.k8s.io/v1", "DeviceClass", field(2, config)))
    assert item["spec"]["config"] == [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": [1]}}}]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        message("v1", "Unknown", b""),
        message("v1", "Pod", b"\x0a\xff"),
        message("v1", "Pod", b"\x0b"),
        message("v1", "Pod", b"\xff" * 20),
        message("v1", "Pod", field(1, 3)),
        message("v1", "Pod", field(1, field(1, b"\xff\xfe"))),
    ],
)
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises((DecodingError, BodyError)):
        from_protobuf(data)


def test_the_server_takes_protobuf_and_answers_in_json() -> None:
    with EmbeddedApiServer() as server:
        spec = field(2, field(1, "c") + field(2, "busybox"))
        body = message("v1", "Pod", field(1, field(1, "p")) + field(2, spec))

        created = ask(server, "POST", PODS, body, content_type=CONTENT_TYPE)
        refused = ask(server, "POST", PODS, b"x", content_type=CONTENT_TYPE)

        assert (created.code, created.body["metadata"]["name"], refused.code) == (201, "p", 400)
