"""What an entry means now, for every state and load of the NVIDIA driver."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from kubeletplugin.claims.journal.entry import Standing, State, driver_generation, standing
from tests.plugin import Entry, HeldDevice

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


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "module" / "nvidia").mkdir(parents=True)
    return tmp_path / "module" / "nvidia"


@contextmanager
def never_used_again(folder: Path) -> Iterator[None]:
    """Keep the folder's inode number from being given to another file, as sysfs does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield
    finally:
        os.close(descriptor)


def test_a_driver_that_is_loaded_anew_is_another(tmp_path: Path, module: Path) -> None:
    first = driver_generation(tmp_path)
    with never_used_again(module):
        module.rmdir()
        assert driver_generation(tmp_path) == ""
        module.mkdir()
        assert driver_generation(tmp_path) not in (first, "")


def test_a_driver_that_stays_loaded_is_the_same_whatever_is_written_below_it(
    tmp_path: Path, module: Path
) -> None:
    first = driver_generation(tmp_path)
    (module / "refcnt").write_text("1")
    os.utime(module, ns=(0, 0))
    module.chmod(0o700)
    assert driver_generation(tmp_path) == first


def test_without_a_driver_and_of_a_sysfs_that_does_not_answer_there_is_none(tmp_path: Path) -> None:
    assert driver_generation(tmp_path) == ""
    (tmp_path / "module").touch()
    assert driver_generation(tmp_path) == ""
    (tmp_path / "module").unlink()
    (tmp_path / "module").symlink_to("module")
    assert driver_generation(tmp_path) == ""
