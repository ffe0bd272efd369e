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

KNOWN: dict[State, tuple[bool, bool, bool]] = {
    "preparing": (True, True, False),
    "prepared": (True, True, True),
    "releasing": (True, False, False),
    "released": (False, False, False),
}
REBUILT = {state: (is_live, has_devices, False) for state, (is_live, has_devices, _) in KNOWN.items()}
"""In the load of the entry: whether it is live, has its devices, and is prepared with all of it known."""
ALL = list(product(get_args(State), (False, True), LOADS))


def lasts(held: HeldDevice) -> bool:
    return held.kind == "passthrough"


def entry(state: State, *devices: HeldDevice, rebuilt: bool = False, load: str = "41") -> Entry:
    return Entry("u-1", "team", "train", state, 5, devices, rebuilt=rebuilt, driver_generation=load)


def seen(now: Standing) -> tuple[bool, bool, bool]:
    """What callers ask of it."""
    return now.is_live, now.has_devices, now.is_prepared


@pytest.mark.parametrize("devices", [(WHOLE,), (WHOLE, LASTING)], ids=["whole", "one lasts"])
@pytest.mark.parametrize(("state", "rebuilt", "load"), ALL)
def test_an_entry_means_what_its_state_says_until_the_driver_is_loaded_again(
    state: State, rebuilt: bool, load: str, devices: tuple[HeldDevice, ...]
) -> None:
    now = standing(entry(state, *devices, rebuilt=rebuilt), load, lasts)
    assert now == Standing(state, load != NOW, rebuilt)
    in_its_load = (REBUILT if rebuilt else KNOWN)[state]
    assert seen(now) == (in_its_load if load == NOW else (False, False, False))


@pytest.mark.parametrize("devices", [(LASTING,), ()], ids=["all last", "none"])
@pytest.mark.parametrize(("state", "rebuilt", "load"), ALL)
def test_what_outlives_the_driver_stands(
    state: State, rebuilt: bool, load: str, devices: tuple[HeldDevice, ...]
) -> None:
    now = standing(entry(state, *devices, rebuilt=rebuilt), load, lasts)
    assert now == Standing(state, ended=False, rebuilt=rebuilt)


@pytest.mark.parametrize("state", get_args(State))
@pytest.mark.parametrize(("load", "now"), [("", ANOTHER), (NOW, "")])
def test_while_a_load_is_not_known_an_entry_stands(state: State, load: str, now: str) -> None:
    assert standing(entry(state, WHOLE, load=load), now, lasts) == Standing(state)


@pytest.mark.parametrize("load", LOADS)
def test_a_claim_without_an_entry_is_unknown(load: str) -> None:
    now = standing(None, load, lasts)
    assert now == Standing("unknown")
    assert seen(now) == (False, False, False)
