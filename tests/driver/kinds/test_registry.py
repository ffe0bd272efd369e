"""What holds of every kind in the registry: a new one is found here by itself."""

import re
from collections import defaultdict
from functools import cache

import pytest

from driver.claims.opaque import KINDS as OPAQUE_KINDS
from driver.devices.gpu_policy import HIDDEN
from driver.kinds.channel import CHANNEL
from driver.kinds.kind import Kinds, OfferedKind
from driver.kinds.registry import KINDS
from tests.clusters import PACKAGE_ROOT, Object
from tests.deviceclasses.published_nodes import all_plans, devices, selectable
from tests.deviceclasses.shipped_classes import ALL, matches
from tests.gpus import unshared_name
from tests.toy_kind.offered import TOY, kinds

WITH_TOYS = kinds()
WORD = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
FIELD = re.compile(r"[a-z][A-Za-z0-9]*", re.ASCII)
OF_EVERY_RULE = {"when", "offer"}
MACHINES = ("a30-quad", "hgx-h100", "vgpu-host-l40s", "vgpu-host-a100-mdev")

each_kind = pytest.mark.parametrize("kind", list(WITH_TOYS), ids=lambda kind: kind.word)


def type_of(device: Object) -> str:
    return str(device["attributes"]["type"]["string"])


@cache
def all_devices() -> list[Object]:
    return [one for name in MACHINES for plan in all_plans(name).values() for one in devices(plan)]


@cache
def published() -> dict[str, set[str]]:
    """The unshared names that nodes publish, by the attribute ``type``; beside them toys, and channels."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for device in all_devices():
        found[type_of(device)].add(unshared_name(str(device["name"])))
    return {**found, TOY.attribute_type: {"toy-0", "toy-7"}, CHANNEL.attribute_type: {"channel-1"}}


@each_kind
def test_a_kind_says_what_it_is_in_words_that_everybody_can_use(kind: OfferedKind) -> None:
    assert WORD.fullmatch(kind.word)
    assert WORD.fullmatch(kind.attribute_type)
    assert kind.form == "" or WORD.fullmatch(kind.form)
    assert kind.described.startswith(("a ", "an "))
    assert kind.opaque in ("", *OPAQUE_KINDS)


@each_kind
def test_a_kind_reads_the_names_that_it_gives_and_no_other_kind_does(kind: OfferedKind) -> None:
    own = {name for name in published()[kind.attribute_type] if kind.parse(name) is not None}

    assert own, f"nothing that the tests publish is of kind {kind.word}"
    assert [name for name in own for other in WITH_TOYS if other is not kind and other.parse(name)] == []


def test_every_published_name_is_of_a_kind() -> None:
    names = {name for of_type in published().values() for name in of_type}

    assert {name for name in names if WITH_TOYS.parse(name) is None} == set()


@pytest.mark.parametrize("kinds", [KINDS, WITH_TOYS], ids=["own", "with toys"])
def test_words_and_fields_do_not_collide(kinds: Kinds) -> None:
    words = [kind.word for kind in kinds]
    fields = [field.name for field in kinds.policy_fields]

    assert sorted(set(words)) == sorted(words)
    assert sorted(set(fields)) == sorted(fields)
    assert [field for field in fields if not FIELD.fullmatch(field)] == []
    assert OF_EVERY_RULE.isdisjoint(fields)
    assert HIDDEN not in kinds.forms


def test_kinds_of_one_attribute_type_take_one_kind_of_configuration() -> None:
    opaque: defaultdict[str, set[str]] = defaultdict(set)
    for kind in WITH_TOYS:
        opaque[kind.attribute_type].add(kind.opaque)

    assert {of_type: found for of_type, found in opaque.items() if len(found) > 1} == {}


OF_NODES = {one.attribute_type for one in KINDS.offerings} - {CHANNEL.attribute_type}


@pytest.mark.parametrize("attribute_type", sorted(OF_NODES))
def test_what_a_node_offers_has_a_class(attribute_type: str) -> None:
    found = [device for device in all_devices() if type_of(device) == attribute_type]
    without_all = [name for name in ALL if name != "monitoring"]

    assert found
    assert any(matches(one, selectable(found[0])) for one in without_all)


_ASKS_BY_NEGATION = re.compile(
    r"\bname\.(?:profile|static|compute_start)\b|\.partition is (?:not )?None|\.static\b"
)
"""What would tell what a device is without asking its kind."""


def test_nobody_but_the_kinds_infers_what_a_device_is() -> None:
    found = [
        f"{path.relative_to(PACKAGE_ROOT)}:{number}"
        for package in ("driver", "controller", "kubeletplugin", "gpuctl")
        for path in sorted((PACKAGE_ROOT / package).rglob("*.py"))
        if "kinds" not in path.relative_to(PACKAGE_ROOT).parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _ASKS_BY_NEGATION.search(line)
    ]
    assert found == []
