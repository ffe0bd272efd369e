"""An island keeps its name whoever joins or leaves it."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from controller.publish.island_names import Islands, renamed, with_kept_names
from driver.devices.device import Device
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import Offers


def _pci(number: int) -> PciAddress:
    return PciAddress(0, number, 0, 0)


def _offers(**islands: str) -> Offers:
    """GPUs by number in the islands of these names: ``_offers(a="012")``."""
    return Offers(
        tuple(
            Device(f"gpu-{number}", _pci(int(number)), {"nvlinkDomain": name, "index": int(number)})
            for name, numbers in islands.items()
            for number in numbers
        ),
        (),
    )


def _domains(found: Offers) -> dict[str, str]:
    return {
        str(device.attributes["index"]): str(device.attributes["nvlinkDomain"]) for device in found.devices
    }


class Last:
    """What one process knows of the names after each look."""

    def __init__(self) -> None:
        self._islands: Islands = {}

    def kept(self, wanted: Offers, stored: Iterable[Device]) -> Offers:
        found, self._islands = with_kept_names(wanted, stored, self._islands)
        return found


def test_an_island_whose_first_member_leaves_keeps_the_name_it_is_stored_with() -> None:
    found = Last().kept(_offers(b="12"), _offers(a="012").devices)
    assert _domains(found) == {"1": "a", "2": "a"}


def test_the_name_outlives_a_wipe_of_the_slices() -> None:
    islands = Last()
    islands.kept(_offers(b="12"), _offers(a="012").devices)
    assert _domains(islands.kept(_offers(b="12"), ())) == {"1": "a", "2": "a"}


def test_who_comes_back_is_in_the_island_that_it_left() -> None:
    islands = Last()
    islands.kept(_offers(a="012"), ())
    islands.kept(_offers(b="12"), _offers(a="012").devices)
    assert _domains(islands.kept(_offers(a="012"), _offers(a="12").devices)) == dict.fromkeys("012", "a")


def test_of_two_parts_of_an_island_the_larger_one_keeps_the_name() -> None:
    found = Last().kept(_offers(a="0", b="12"), _offers(a="012").devices)
    assert _domains(found) == {"0": "a-2", "1": "a", "2": "a"}


def test_offers_whose_names_are_kept_are_the_same_object() -> None:
    wanted = _offers(a="012")
    assert Last().kept(wanted, wanted.devices) is wanted


groupings = st.dictionaries(st.integers(0, 9), st.sampled_from("abcd"))


@given(groupings, groupings)
def test_groups_stay_apart_and_whole_ones_keep_their_name(now: dict[int, str], last: dict[int, str]) -> None:
    given_names = renamed(
        {_pci(n): name for n, name in now.items()}, {_pci(n): name for n, name in last.items()}
    )
    assert given_names.keys() == set(now.values())
    assert len(set(given_names.values())) == len(given_names)
    if now.keys() <= last.keys() and all(
        (last[one] == last[other]) == (now[one] == now[other]) for one in now for other in now
    ):
        assert all(given_names[name] == last[number] for number, name in now.items())
