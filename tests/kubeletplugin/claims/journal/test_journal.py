"""The journal outlives the process, agrees with the disk, and survives what it cannot read."""

import contextlib
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.claims.journal.entry import MalformedEntry, decode, encode
from kubeletplugin.claims.journal.journal import _MOST_ASIDE
from tests.clusters import Object
from tests.gpus import StorageError
from tests.plugin import Entry, HeldDevice, Journal, ShareRecord

GPU_0, GPU_1 = "0000:01:00.0", "0000:02:00.0"


def held(pci: str = GPU_0) -> HeldDevice:
    return HeldDevice("gpu", "n/gpu.nvidia.com", f"gpu-{pci}", pci, "GPU-1", f"u-1-gpu-{pci}", kind="whole")


def entry(uid: str = "u-1", *devices: HeldDevice) -> Entry:
    return Entry(uid, "team", "train", "prepared", 5, devices or (held(),), "digest")


OF_NO_VERSION = encode(entry()).replace(b'"schema":1', b'"schema":0')


def alone(folder: Path) -> Journal:
    answers = iter([True])
    return Journal(folder, lambda: next(answers, False))


def test_the_holders_of_a_gpu_are_the_claims_that_were_not_released(tmp_path: Path) -> None:
    journal = alone(tmp_path)
    journal.put(entry("u-1"))
    journal.put(entry("u-2", held(GPU_0), held(GPU_1)))
    journal.put(replace(entry("u-1"), state="released"))

    assert [found.uid for found in journal.holders(GPU_0)] == ["u-2"]
    assert [found.uid for found in journal.holders(GPU_1)] == ["u-2"]
    assert journal.held_count() == 1
    journal.forget("u-2")
    assert journal.holders(GPU_0) == ()
    assert journal.held_count() == 0
    assert [found.uid for found in journal.entries()] == ["u-1"]


def test_each_change_of_a_state_is_reported(tmp_path: Path) -> None:
    changed: list[int] = []
    journal = Journal(tmp_path, lambda: False)
    journal.on_change = lambda: changed.append(journal.held_count())
    taken = entry("u-1", held())
    tombstone = replace(taken, state="released", devices=())

    journal.put(taken)
    journal.put(replace(taken, spec_sha256="other"))
    journal.put(tombstone)
    journal.forget("u-1")
    journal.put(replace(tombstone, uid="u-2"))

    assert changed == [1, 0, 0, 0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"schema":1}',
        encode(entry())[:-20] + b"}}\n",
        encode(entry("u-2")),
        b"\xff\xfe",
        OF_NO_VERSION,
    ],
    ids=["empty", "list", "bare", "truncated", "of another claim", "binary", "of no version"],
)
def test_an_unreadable_file_is_put_aside_and_only_its_claim_suffers(tmp_path: Path, content: bytes) -> None:
    alone(tmp_path).put(entry("u-9"))
    (tmp_path / "u-1.json").write_bytes(content)
    journal = alone(tmp_path)

    assert [found.uid for found in journal.entries()] == ["u-9"]
    (aside,) = journal.take_set_aside()
    assert aside.uid == "u-1"
    assert aside.path.read_bytes() == content
    assert not (tmp_path / "u-1.json").exists()
    assert journal.take_set_aside() == ()


def test_of_files_that_were_put_aside_the_newest_hundred_are_kept(tmp_path: Path) -> None:
    for number in range(_MOST_ASIDE + 5):
        (tmp_path / f"u-{number}.json").write_text("{")
        alone(tmp_path).entries()

    kept = {file.name.rpartition("-")[0] for file in (tmp_path / "unreadable").iterdir()}
    assert len(kept) == _MOST_ASIDE + 1
    assert f"u-{_MOST_ASIDE + 4}" in kept
    assert "u-0" not in kept


def test_an_entry_that_is_known_is_not_forgotten_because_it_cannot_be_read(tmp_path: Path) -> None:
    """Its claim holds GPUs, and nobody else's suffers."""
    journal = Journal(tmp_path, lambda: True)
    journal.put(entry("u-1"))
    journal.put(entry("u-2"))
    (tmp_path / "u-1.json").unlink()
    (tmp_path / "u-1.json").mkdir()

    with pytest.raises(StorageError, match="it is not a regular file: check the disk"):
        journal.get("u-1")
    assert journal.get("u-2") == entry("u-2")
    assert [found.uid for found in journal.holders(GPU_0)] == ["u-1", "u-2"]
    (tmp_path / "u-1.json").rmdir()
    assert journal.get("u-1") is None
    assert [found.uid for found in journal.holders(GPU_0)] == ["u-2"]


def test_a_file_that_can_neither_be_read_nor_put_aside_stops_only_its_claim(tmp_path: Path) -> None:
    alone(tmp_path).put(entry("u-9"))
    (tmp_path / "u-1.json").write_text("{")
    (tmp_path / "unreadable").touch()
    journal = alone(tmp_path)

    assert [found.uid for found in journal.entries()] == ["u-9"]
    with pytest.raises(StorageError, match="cannot be put aside"):
        journal.get("u-1")
    (tmp_path / "unreadable").unlink()
    assert journal.get("u-1") is None
    assert [one.uid for one in journal.take_set_aside()] == ["u-1"]


texts = st.text(max_size=20)
records = st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts, max_size=3)
shares = st.builds(
    ShareRecord,
    texts,
    st.sampled_from(["TimeSlicing", "MPS"]),
    *[st.integers(0, 2**63)] * 2,
    texts,
    *[st.integers(0, 100)] * 2,
    st.booleans(),
)
devices = st.builds(
    HeldDevice,
    *[texts] * 6,
    st.none() | texts,
    st.booleans(),
    records,
    st.none() | shares,
    kind=st.sampled_from(["whole", "static", "partition", "of the future"]),
    memory_limit_bytes=st.none() | st.integers(0, 2**63),
)
entries = st.builds(
    Entry,
    texts,
    texts,
    texts,
    st.sampled_from(["preparing", "prepared", "released", "lost"]),
    st.integers(0, 2**63),
    st.lists(devices, max_size=3).map(tuple),
    *[texts] * 3,
)


@given(entries, st.data())
def test_an_entry_reads_back_and_no_damaged_byte_goes_unnoticed(written: Entry, data: st.DataObject) -> None:
    good = encode(written)
    assert decode(good) == written
    at = data.draw(st.integers(0, len(good) - 1))
    damaged = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]

    with contextlib.suppress(MalformedEntry):
        assert decode(damaged) == written, "only what the checksum does not cover may differ"


def test_a_device_that_spans_gpus_is_found_on_each_of_them(tmp_path: Path) -> None:
    pair = replace(held(), device="pair", pci=GPU_0, more_gpus=(GPU_1,))
    journal = alone(tmp_path)
    journal.put(replace(entry(), devices=(pair,)))

    for found in (journal, alone(tmp_path)):
        (only,) = found.holders(GPU_1)
        assert only.gpus == (GPU_0, GPU_1)
        assert found.holders_of(replace(held(), pci=GPU_1)) == (only,)
        assert found.holders_of(pair) == (only,)


def signed(document: Object) -> Object:
    """The document with the checksum that its entry has now."""
    body = json.dumps(document["entry"], sort_keys=True, separators=(",", ":"))
    return {**document, "sha256": hashlib.sha256(body.encode()).hexdigest()}


def test_fields_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    document = json.loads(encode(entry()))
    document["entry"]["colour"] = "red"
    document["entry"]["devices"][0]["shape"] = {"start": 4}
    (tmp_path / "u-1.json").write_text(json.dumps(signed(document)))

    assert alone(tmp_path).get("u-1") == entry()
