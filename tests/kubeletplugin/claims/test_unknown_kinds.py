"""A newer version has prepared a device of a kind that this one does not know: nobody touches it."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kubeletplugin.claims.journal.entry import MalformedEntry, decode
from tests.gpus import ClaimBlocked, DeviceHeld
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef, Entry


def prepared_by_a_newer_version(node: FakeNode, ref: ClaimRef) -> Entry:
    """What the journal has of a claim whose device is of a kind that is not known here."""
    node.prepare(ref)
    entry = node.entry(ref)
    future = tuple(
        replace(held, kind="of-the-future", record={"brick": held.device}) for held in entry.devices
    )
    node.journal.put(replace(entry, devices=future))
    node.restart()
    kept = node.entry(ref)
    assert kept.devices == future
    return kept


def written_in_a_newer_schema(node: FakeNode, ref: ClaimRef) -> None:
    """The file of a claim as a version writes it that has other fields, which a new plugin reads."""
    node.prepare(ref)
    path = node.entry_file(ref)
    body = json.loads(path.read_bytes())["entry"]
    body["devices"] = [
        {name: device[name] for name in ("device", "pci", "more_gpus")} | {"form": ["whole"]}
        for device in body["devices"]
    ]
    body["held_since"] = body.pop("changed_ns")
    body["state"] = "half-prepared"
    told = json.dumps(body, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(told.encode()).hexdigest()
    path.write_text(f'{{"schema":2,"sha256":"{digest}","entry":{told}}}')
    node.restart()


KIND = "of kind of-the-future, which this version of the driver"
SCHEMA = "whose journal has schema 2, but this version reads schema 1: run that version until"


@pytest.mark.parametrize(
    ("prepared", "why"), [(prepared_by_a_newer_version, KIND), (written_in_a_newer_schema, SCHEMA)]
)
def test_it_is_kept_and_held_and_nobody_answers_for_it_or_lets_it_go(
    node: FakeNode, prepared: Callable[[FakeNode, ClaimRef], object], why: str
) -> None:
    """It was put aside as damaged, and the version that wrote it did not find it any more."""
    ref = node.claim("new", 0)
    prepared(node, ref)
    path = node.entry_file(ref)
    before = path.read_bytes()

    for does in (node.prepare, node.unprepare):
        with pytest.raises(ClaimBlocked, match=why):
            does(ref)
    with pytest.raises(DeviceHeld, match="is still held by another claim"):
        node.prepared("whole", 0)
    with pytest.raises(DeviceHeld):
        node.prepared_devices("part", node.part())
    assert node.prepare(node.claim("other", 1))

    node.sharing_reconciler.run_once()
    node.health.run_once()
    node.reconciler.restore_specs()
    node.reconciler.finish_releases()
    del node.api["team", "new"]
    assert node.reconciler.run_once() == ()
    node.restart()
    assert path.read_bytes() == before
    assert node.journal.take_set_aside() == ()
    assert node.spec_path(ref).exists(), "its pod may be starting a container"


@pytest.mark.parametrize(
    "body", [{}, [], {"uid": "u", "devices": [{"device": "d", "pci": "x", "more_gpus": []}]}]
)
def test_an_entry_of_a_newer_schema_without_what_every_schema_has_is_damaged(body: Any) -> None:
    told = json.dumps(body, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(told.encode()).hexdigest()
    with pytest.raises(MalformedEntry):
        decode(f'{{"schema":2,"sha256":"{digest}","entry":{told}}}'.encode())
