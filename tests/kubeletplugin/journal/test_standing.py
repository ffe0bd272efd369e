"""What an entry means now, for every state in which it can be and everything that can have happened since."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from kubeletplugin.journal.entry import Entry, HeldDevice, Standing, State, standing
from kubeletplugin.journal.identity import Era

WHOLE = HeldDevice("a", "pool", "gpu-1", "0000:01:00.0", "GPU-1", "u-1-a", kind="whole")
LASTING = HeldDevice("b", "pool", "gpu-2", "0000:02:00.0", "GPU-2", "u-1-b", kind="passthrough")

NOW, ANOTHER_LOAD, ANOTHER_BOOT = Era("boot", "41"), Era("boot", "42"), Era("later", "41")
ERAS = (NOW, ANOTHER_LOAD, ANOTHER_BOOT)

KNOWN: dict[State, tuple[Standing, Standing, Standing]] = {
    "preparing": ("preparing", "over", "over"),
    "prepared": ("prepared", "reloaded", "over"),
    "releasing": ("releasing", "over", "over"),
    "released": ("released", "released", "released"),
}
REBUILT: dict[State, tuple[Standing, Standing, Standing]] = {
    "preparing": ("rebuilt", "over", "over"),
    "prepared": ("rebuilt", "over", "over"),
    "releasing": ("rebuilt", "over", "over"),
    "released": ("released", "released", "released"),
}
"""By the era that is now: that of the entry, another load of the driver, another boot."""


def lasts(held: HeldDevice) -> bool:
    return held.kind == "passthrough"


def entry(state: State, *devices: HeldDevice, rebuilt: bool = False, load: str = "41") -> Entry:
    return Entry("u-1", "team", "train", state, "boot", 5, devices, rebuilt=rebuilt, driver_generation=load)


@pytest.mark.parametrize("devices", [(WHOLE,), (WHOLE, LASTING), ()], ids=["whole", "one lasts", "none"])
@pytest.mark.parametrize(("state", "rebuilt"), list(product(get_args(State), (False, True))))
def test_an_entry_stands_as_its_state_says_until_its_era_is_over(
    state: State, rebuilt: bool, devices: tuple[HeldDevice, ...]
) -> None:
    one = entry(state, *devices, rebuilt=rebuilt)
    expected = (REBUILT if rebuilt else KNOWN)[state]
    if devices:
        assert tuple(standing(one, era, lasts) for era in ERAS) == expected
    else:
        assert standing(one, ANOTHER_BOOT, lasts) == expected[2]


@pytest.mark.parametrize(("state", "rebuilt"), list(product(get_args(State), (False, True))))
def test_what_outlives_the_driver_stands_until_the_next_boot(state: State, rebuilt: bool) -> None:
    one = entry(state, LASTING, rebuilt=rebuilt)
    now, _, later = (REBUILT if rebuilt else KNOWN)[state]
    assert tuple(standing(one, era, lasts) for era in ERAS) == (now, now, later)


@pytest.mark.parametrize("state", get_args(State))
@pytest.mark.parametrize(("load", "era"), [("", ANOTHER_LOAD), ("41", Era("boot"))])
def test_while_a_load_is_not_known_an_entry_stands(state: State, load: str, era: Era) -> None:
    assert standing(entry(state, WHOLE, load=load), era, lasts) == state


@pytest.mark.parametrize("era", ERAS)
def test_a_claim_without_an_entry_is_unknown(era: Era) -> None:
    assert standing(None, era, lasts) == "unknown"
