"""The status is put into a stored claim, and every other byte of it comes back as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kubeletplugin.reports.status.stored_bytes import NotStoredBytes, uid_of, with_statuses

ODD = b'{ "kind" :  "GpuConfig",\n "apiVersion":"x" }'
NOW = "2026-01-01T00:00:09Z"


def field(number: int, value: bytes | str | int) -> bytes:
    """One field of a message, as protobuf encodes it."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    """A number, as protobuf encodes it."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that hold bytes or numbers, each number as it is encoded."""
    at = 0
    while at < len(data):
        tag, at = number_at(data, at)
        value, end = number_at(data, at)
        if tag & 7 == 0:
            yield tag >> 3, data[at:end]
            at = end
        else:
            yield tag >> 3, data[end : end + value]
            at = end + value


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


ALLOCATION = field(1, field(2, field(4, ODD)))
METADATA = field(1, "train") + field(5, "uid-1") + field(6, "77") + field(17, b"managed fields")
SPEC = field(1, field(3, ODD))
RESERVED = field(3, "pods") + field(4, "train-0")
WARM = field(1, "Warm") + field(2, "False") + field(3, 7) + field(5, "Cold")
OTHER = field(1, "nic.example.com") + field(2, "node") + field(3, "nic-0") + field(6, field(1, "eth1"))


def stored(*devices: bytes) -> bytes:
    """A claim as the API server stores it."""
    status = field(1, ALLOCATION) + field(2, RESERVED) + b"".join(field(4, one) for one in devices)
    claim = field(1, METADATA) + field(2, SPEC) + field(3, status)
    kind = field(1, "resource.k8s.io/v1") + field(2, "ResourceClaim")
    return b"k8s\x00" + field(1, kind) + field(2, claim) + field(3, "") + field(4, "")


def entry(device: str = "gpu-0", share_id: str = "", status: str = "False") -> dict[str, object]:
    """An entry of ``status.devices``, in the form of JSON."""
    ready = {
        "type": "Ready",
        "status": status,
        "reason": "GpuLost",
        "message": "it fell off",
        "lastTransitionTime": NOW,
    }
    return {
        "driver": "gpu.nvidia.com",
        "pool": "node",
        "device": device,
        **({"shareID": share_id} if share_id else {}),
        "conditions": [ready],
        "data": {"uuid": "GPU-1"},
    }


def parts(body: bytes) -> tuple[dict[int, bytes], list[tuple[int, bytes]]]:
    """The fields of the claim, and those of its status."""
    assert body.startswith(b"k8s\x00")
    claim = dict(fields(dict(fields(body[4:]))[2]))
    return claim, list(fields(claim[3]))


def test_all_but_the_devices_comes_back_byte_for_byte() -> None:
    claim, status = parts(with_statuses(stored(OTHER), [entry()]))
    assert dict(fields(claim[1])) == dict(fields(METADATA))
    assert claim[2] == SPEC
    assert dict(status)[1] == ALLOCATION
    assert dict(status)[2] == RESERVED
    others = [value for number, value in status if number == 4]
    assert sorted(fields(others[0])) == sorted(fields(OTHER))
    assert len(others) == 2


def test_an_entry_is_written_as_the_api_has_it() -> None:
    _, status = parts(with_statuses(stored(), [entry(share_id="5f0e")]))
    (device,) = (dict(fields(value)) for number, value in status if number == 4)
    assert [device[number] for number in (1, 2, 3, 7)] == [b"gpu.nvidia.com", b"node", b"gpu-0", b"5f0e"]
    assert json.loads(dict(fields(device[5]))[1]) == {"uuid": "GPU-1"}
    condition = dict(fields(device[4]))
    assert [condition[number] for number in (1, 2, 5, 6)] == [b"Ready", b"False", b"GpuLost", b"it fell off"]
    assert number_at(dict(fields(condition[4]))[1], 0)[0] == 1767225609


def test_conditions_of_other_types_stay_and_ours_is_replaced() -> None:
    former = field(1, "Ready") + field(2, "True")
    ours = field(1, "gpu.nvidia.com") + field(2, "node") + field(3, "gpu-0")
    ours += field(4, WARM) + field(4, former) + field(5, field(1, b"{}"))
    _, status = parts(with_statuses(stored(ours), [entry()]))
    (device,) = (value for number, value in status if number == 4)
    conditions = [value for number, value in fields(device) if number == 4]
    assert sorted(fields(conditions[0])) == sorted(fields(WARM))
    assert [dict(fields(one))[2] for one in conditions] == [b"False", b"False"]


def test_each_share_of_a_device_has_an_entry_of_its_own() -> None:
    body = with_statuses(
        stored(), [entry(share_id="a"), entry(share_id="b"), entry(share_id="a", status="True")]
    )
    devices = [dict(fields(value)) for number, value in parts(body)[1] if number == 4]
    assert [device[7] for device in devices] == [b"a", b"b"]
    assert dict(fields(devices[0][4]))[2] == b"True"


def test_the_uid_tells_whose_bytes_they_are() -> None:
    assert uid_of(stored()) == "uid-1"


@pytest.mark.parametrize(
    "body", [b'{"kind": "ResourceClaim"}', b"", b"k8s\x00\xff\xff", b"k8s\x00\x12\x02\xff\xff"]
)
def test_what_is_no_stored_object_is_refused(body: bytes) -> None:
    with pytest.raises(NotStoredBytes):
        with_statuses(body, [entry()])
