"""What an entry means now, for every state in which it can be and everything that can have happened since."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Standing, State, standing

WHOLE = HeldDevice("a", "pool", "gpu-1", "0000:01:00.0", "GPU-1", "u-1-a", kind="whole")
LASTING = HeldDevice("b", "pool", "gpu-2", "0000:02:00.0", "GPU-2", "u-1-b", kind="passthrough")

NOW, ANOTHER = "41", "42"
LOADS = (NOW, ANOTHER)

MEANING: dict[State, tuple[bool, bool, bool]] = {
    "preparing": (True, True, False),
    "prepared": (True, True, True),
    "releasing": (True, False, False),
    "lost": (True, True, False),
    "released": (False, False, False),
}
"""In the load of the entry: whether it is live, has its devices, and is prepared."""


def entry(state: State, *devices: HeldDevice, load: str = NOW) -> Entry:
    return Entry("u-1", "team", "train", state, 5, devices, driver_generation=load)


def seen(now: Standing) -> tuple[bool, bool, bool]:
    """What callers ask of it."""
    return now.is_live, now.has_devices, now.is_prepared


@pytest.mark.parametrize("devices", [(WHOLE,), (WHOLE, LASTING)], ids=["whole", "one lasts"])
@pytest.mark.parametrize(("state", "load"), list(product(get_args(State), LOADS)))
def test_an_entry_means_what_its_state_says_until_the_driver_is_loaded_again(
    state: State, load: str, devices: tuple[HeldDevice, ...]
) -> None:
    now = standing(entry(state, *devices), load)
    assert now == Standing(state, load != NOW)
    assert seen(now) == (MEANING[state] if load == NOW else (False, False, False))


@pytest.mark.parametrize("devices", [(LASTING,), ()], ids=["all last", "none"])
@pytest.mark.parametrize(("state", "load"), list(product(get_args(State), LOADS)))
def test_what_outlives_the_driver_stands(state: State, load: str, devices: tuple[HeldDevice, ...]) -> None:
    assert standing(entry(state, *devices), load) == Standing(state)


@pytest.mark.parametrize("state", get_args(State))
@pytest.mark.parametrize(("load", "now"), [("", ANOTHER), (NOW, "")])
def test_while_a_load_is_not_known_an_entry_stands(state: State, load: str, now: str) -> None:
    assert standing(entry(state, WHOLE, load=load), now) == Standing(state)


@pytest.mark.parametrize("load", LOADS)
def test_a_claim_without_an_entry_is_unknown(load: str) -> None:
    now = standing(None, load)
    assert now == Standing("unknown")
    assert seen(now) == (False, False, False)
