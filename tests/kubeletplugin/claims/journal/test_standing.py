"""What an entry means now, for every state in which it can be and everything that can have happened since."""

from __future__ import annotations

from itertools import product
from typing import Literal, get_args

import pytest

from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Standing, State, standing
from kubeletplugin.claims.journal.identity import Era

WHOLE = HeldDevice("a", "pool", "gpu-1", "0000:01:00.0", "GPU-1", "u-1-a", kind="whole")
LASTING = HeldDevice("b", "pool", "gpu-2", "0000:02:00.0", "GPU-2", "u-1-b", kind="passthrough")

NOW, ANOTHER_LOAD, ANOTHER_BOOT = Era("boot", "41"), Era("boot", "42"), Era("later", "41")
ENDED: dict[Era, Literal["", "load", "boot"]] = {NOW: "", ANOTHER_LOAD: "load", ANOTHER_BOOT: "boot"}

KNOWN: dict[State, tuple[bool, bool, bool]] = {
    "preparing": (True, True, False),
    "prepared": (True, True, True),
    "releasing": (True, False, False),
    "released": (False, False, False),
}
REBUILT = {state: (is_live, has_devices, False) for state, (is_live, has_devices, _) in KNOWN.items()}
"""In the era of the entry: whether it is live, has its devices, and is prepared with all of it known."""
ALL = list(product(get_args(State), (False, True), ENDED))


def lasts(held: HeldDevice) -> bool:
    return held.kind == "passthrough"


def entry(state: State, *devices: HeldDevice, rebuilt: bool = False, load: str = "41") -> Entry:
    return Entry("u-1", "team", "train", state, "boot", 5, devices, rebuilt=rebuilt, driver_generation=load)


def seen(now: Standing) -> tuple[bool, bool, bool]:
    """What callers ask of it."""
    return now.is_live, now.has_devices, now.is_prepared


@pytest.mark.parametrize("devices", [(WHOLE,), (WHOLE, LASTING)], ids=["whole", "one lasts"])
@pytest.mark.parametrize(("state", "rebuilt", "era"), ALL)
def test_an_entry_means_what_its_state_says_until_its_era_ends(
    state: State, rebuilt: bool, era: Era, devices: tuple[HeldDevice, ...]
) -> None:
    now = standing(entry(state, *devices, rebuilt=rebuilt), era, lasts)
    assert now == Standing(state, ENDED[era], rebuilt)
    in_its_era = (REBUILT if rebuilt else KNOWN)[state]
    assert seen(now) == (in_its_era if era == NOW else (False, False, False))


@pytest.mark.parametrize("devices", [(LASTING,), ()], ids=["all last", "none"])
@pytest.mark.parametrize(("state", "rebuilt", "era"), ALL)
def test_what_outlives_the_driver_stands_until_the_next_boot(
    state: State, rebuilt: bool, era: Era, devices: tuple[HeldDevice, ...]
) -> None:
    now = standing(entry(state, *devices, rebuilt=rebuilt), era, lasts)
    assert now == Standing(state, "boot" if era == ANOTHER_BOOT else "", rebuilt)


@pytest.mark.parametrize("state", get_args(State))
@pytest.mark.parametrize(("load", "era"), [("", ANOTHER_LOAD), ("41", Era("boot"))])
def test_while_a_load_is_not_known_an_entry_stands(state: State, load: str, era: Era) -> None:
    assert standing(entry(state, WHOLE, load=load), era, lasts) == Standing(state)


@pytest.mark.parametrize("era", ENDED)
def test_a_claim_without_an_entry_is_unknown(era: Era) -> None:
    now = standing(None, era, lasts)
    assert now == Standing("unknown")
    assert seen(now) == (False, False, False)
