"""The field ``mig`` of a rule is read strictly, and every error in it is told with its path."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from driver.kinds.partition.field import read_mig
from driver.kinds.partition.layouts import profile_of_layout
from tests.gpus import MigOffer


def read(text: str) -> tuple[MigOffer, list[str]]:
    errors: list[str] = []
    return read_mig(yaml.safe_load(text), "mig", errors), errors


@pytest.mark.parametrize(
    ("text", "offer"),
    [
        ("off", MigOffer("off")),
        ("static", MigOffer("static")),
        ("dynamic", MigOffer("dynamic")),
        ("{dynamic: {profiles: [1g, 3g.40gb+me]}}", MigOffer("dynamic", profiles=("1g", "3g.40gb+me"))),
        ("{layout: all-balanced}", MigOffer("layout", layout="all-balanced")),
        ("{layout: all-disabled}", MigOffer("off")),
        ("{layout: all-1g.10gb.me}", MigOffer("layout", layout="all-1g.10gb.me")),
        ("{layout: [1g, 1g, 2g.20gb]}", MigOffer("layout", layout=("1g", "1g", "2g.20gb"))),
        ("{layout: {1g.10gb: 2, 3g-me: 1}}", MigOffer("layout", layout=("1g.10gb", "1g.10gb", "3g-me"))),
    ],
)
def test_every_way_to_write_it_is_understood(text: str, offer: MigOffer) -> None:
    assert read(text) == (offer, [])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("on", "mig: must be off, static"),
        ("{}", "mig: must be off, static"),
        ("{dynamic: {profiles: [1g]}, layout: all-1g}", "mig: must be off, static"),
        ("{static: {}, layout: all-1g}", "mig.static: unknown field"),
        ("{dynamic: null}", "mig.dynamic: must be a mapping with profiles"),
        ("{dynamic: {profile: 1g, profiles: [1g]}}", "mig.dynamic.profile: unknown field"),
        ("{dynamic: {profiles: []}}", "mig.dynamic.profiles: must be a list of 1 to 64"),
        ("{dynamic: {profiles: [1g, 1G]}}", "mig.dynamic.profiles[1]: must be a profile"),
        ("{dynamic: {profiles: [1g, 2g, 1g]}}", "mig.dynamic.profiles[2]: 1g appears more than once"),
        ("{layout: []}", "mig.layout: must be a list of 1 to 16"),
        ("{layout: {}}", "mig.layout: must name 1 to 16 partitions"),
        ("{layout: balanced}", "mig.layout: must be one of all-disabled"),
        ("{layout: [1g, 2g, 1c.2g]}", "mig.layout[2]: must be a profile"),
        ("{layout: [1]}", "mig.layout[0]: must be a profile"),
        ("{layout: {1g: 0}}", "mig.layout.1g: must be a number from 1 to 16"),
        ("{layout: {1g: 1000000000}}", "mig.layout.1g: must be a number from 1 to 16"),
        ("{layout: {2: 1}}", "mig.layout.2: must be a profile"),
        ("{layout: {1g: 16, 2g: 1}}", "mig.layout: must name 1 to 16 partitions"),
    ],
)
def test_anything_else_is_an_error_with_its_path(text: str, error: str) -> None:
    _, errors = read(text)

    assert len(errors) == 1
    assert errors[0].startswith(error)


def test_all_errors_of_a_list_are_told_at_once() -> None:
    assert [error.split(":")[0] for error in read("{layout: [x, 1g, y]}")[1]] == [
        "mig.layout[0]",
        "mig.layout[2]",
    ]


@pytest.mark.parametrize(
    ("layout", "profile"),
    [
        ("all-1g.10gb", "1g.10gb"),
        ("all-1g.10gb.me", "1g.10gb+me"),
        ("all-1g.me", "1g+me"),
        ("all-2g.48gb.me.all", "2g.48gb+me.all"),
        ("all-4g.96gb.gfx", "4g.96gb+gfx"),
        ("all-balanced", None),
        ("all-1g.10gb\n", None),
        ("1g.10gb", None),
    ],
)
def test_a_layout_is_named_after_its_profile_as_mig_parted_does(layout: str, profile: str | None) -> None:
    assert profile_of_layout(layout) == profile


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("1g.0b+me-al ", max_size=8) | st.floats(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text("dynamiclayoutprfes"), inner),
    max_leaves=25,
)
LAYOUTS = st.fixed_dictionaries({"layout": ANYTHING}) | st.fixed_dictionaries({"dynamic": ANYTHING})


@given(ANYTHING | LAYOUTS)
def test_whatever_stands_there_is_read_or_refused(value: Any) -> None:
    errors: list[str] = []

    offer = read_mig(value, "mig", errors)

    assert errors or len(offer.profiles) <= 64
    assert errors or isinstance(offer.layout, str) or len(offer.layout) <= 16
    assert all(error.startswith("mig") for error in errors)
