"""The tables that the code makes for the documentation say all of it.

``python -m tools.docs.lookup --check`` says whether the pages have them.
"""

import re

import pytest

from driver.claims.opaque import API_VERSION, KINDS
from tests.deviceclasses.published_nodes import ALL_KINDS, BY_MEMORY, MIG_MACHINES, VGPUS, devices, plan
from tests.gpus import MalformedConfig, decode_any, known_machines
from tools.docs.lookup import attributes, errors
from tools.docs.lookup.claim_fields import FIELDS, Field


@pytest.mark.parametrize("machine", known_machines())
def test_whatever_a_machine_publishes_stands_in_the_tables(machine: str) -> None:
    found: tuple[dict[str, attributes.Seen], dict[str, attributes.Seen]] = ({}, {})
    plans = [plan(machine), *(plan(machine, text) for text in (ALL_KINDS, BY_MEMORY, VGPUS))]
    for planned in [*plans, *([plan(machine, cut=True)] if machine in MIG_MACHINES else [])]:
        for device in devices(planned):
            attributes.add(device, *found)
    for published, told in zip(found, attributes.seen(), strict=True):
        assert {name for name, one in published.items() if not one.types <= told[name].types} == set()
        assert {name for name, one in published.items() if not one.kinds <= told[name].kinds} == set()


EACH = [(kind, field) for kind, fields in FIELDS.items() for field in fields]


@pytest.mark.parametrize(("kind", "field"), EACH, ids=[f"{kind} {field.path}" for kind, field in EACH])
def test_a_field_of_a_configuration_takes_its_example_and_has_its_limits(kind: str, field: Field) -> None:
    decode_any(field.document(kind, field.taken))
    with pytest.raises(MalformedConfig, match=re.escape(field.path.rsplit(".", 1)[-1])):
        decode_any(field.document(kind, field.refused))


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_a_configuration_can_say_stands_in_its_table(kind: str) -> None:
    plain = decode_any({"apiVersion": API_VERSION, "kind": kind})
    said = [decode_any(one.document(kind, one.taken)) for one in FIELDS[kind]]
    never = {
        name for name in plain.__slots__ if all(getattr(one, name) == getattr(plain, name) for one in said)
    }
    assert never == set()


def test_every_error_has_a_way_out_and_every_way_out_an_error() -> None:
    names = {one.name for one in errors.tree()}
    assert {one.name for one in errors.tree() if not errors.way_out(one)} == set()
    assert set(errors.WAYS_OUT) - names == set()
