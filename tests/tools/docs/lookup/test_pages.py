"""The tables of the documentation are those that the code makes, and say all of it."""

from __future__ import annotations

import re

import click
import pytest

from driver import errors as error_tree
from driver.claims.opaque import KINDS, MalformedConfig, decode_any
from driver.errors import DriverError
from driver.fabric.api import NotShared
from driver.kube.errors import Forbidden
from driver.nvml.api import NotFound
from fakegpu.machine.spec import known_machines
from gpuctl.gather.masking import FLAGS
from kubeletplugin.retire import NotRetired
from tests.deviceclasses.published_nodes import ALL_KINDS, BY_MEMORY, MIG_MACHINES, VGPUS, devices, plan
from tools.docs.lookup import attributes, claim_fields, errors, flags
from tools.docs.lookup.__main__ import PARTS, pages
from tools.docs.lookup.claim_fields import FIELDS, Field
from tools.docs.lookup.marked import names

OWN = (error_tree.ConfigError, error_tree.ClaimBlocked, error_tree.HardwareChanged)


def test_the_pages_hold_what_is_made() -> None:
    made = pages()
    assert sum(len(names(text)) for text in made.values()) == len(PARTS)
    assert {page.name: page.read_text() == text for page, text in made.items()} == {
        page.name: True for page in made
    }


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
    decode_any(field.document(kind, field.taken), of_class=field.of_class)
    with pytest.raises(MalformedConfig, match=re.escape(field.path.rsplit(".", 1)[-1])):
        decode_any(field.document(kind, field.refused), of_class=field.of_class)
    if field.of_class:
        with pytest.raises(MalformedConfig, match="only in a DeviceClass"):
            decode_any(field.document(kind, field.taken))


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_a_configuration_can_say_stands_in_its_table(kind: str) -> None:
    plain = decode_any({"apiVersion": claim_fields.version_of(kind), "kind": kind})
    said = [decode_any(one.document(kind, one.taken), of_class=True) for one in FIELDS[kind]]
    never = {
        name for name in plain.__slots__ if all(getattr(one, name) == getattr(plain, name) for one in said)
    }
    # A GpuConfig of NVIDIA's has no memory: the field is that of SharedGpuConfig, which is decoded as one.
    assert never == ({"memory"} if kind == "GpuConfig" else set())


def test_the_tree_of_errors_says_of_each_whether_waiting_helps() -> None:
    told = {(one.module, one.name): one.retryable for one in errors.tree()}
    for known in (DriverError, *OWN, NotFound, Forbidden, NotShared, NotRetired, MalformedConfig):
        assert told[known.__module__.replace(".", "/") + ".py", known.__name__] == known.retryable


def test_every_error_has_a_way_out_and_every_way_out_an_error() -> None:
    names = {one.name for one in errors.tree()}
    assert {one.name for one in errors.tree() if not errors.way_out(one)} == set()
    assert set(errors.WAYS_OUT) - names == set()


def test_every_flag_of_a_process_is_on_the_page_with_its_variable() -> None:
    text = flags.process_tables()
    for name, command in flags.processes().items():
        for option in flags.options(command):
            assert f"`{', '.join(option.opts)}" in text, (name, option.opts)
    known = {
        one.opts[0].removeprefix("--")
        for command in flags.processes().values()
        for one in flags.options(command)
    }
    assert FLAGS - known == set()
    assert "`GPU_DRA_NODE_NAME`" in text


def test_every_command_of_gpuctl_and_each_of_its_options_is_on_its_page() -> None:
    commands = flags.gpuctl_commands()
    text = flags.gpuctl_tables()
    assert {"gpuctl status", "gpuctl plan", "gpuctl import device-plugin"} <= set(commands)
    for name, command in commands.items():
        part = text.partition(f"### `{name}`\n")[2].partition("\n### ")[0]
        told = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        missing = [
            one.opts for one in told if one.name not in ("help", "version") and one.opts[-1] not in part
        ]
        assert missing == [], name
