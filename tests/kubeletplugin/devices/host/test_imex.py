"""The host's nvidia-imex is asked by its own program, which may say no, hang, or be missing."""

from pathlib import Path

import pytest

from fakegpu.driver_files.driver_root import IMEX_CONTROL, IMEX_STATE
from kubeletplugin.devices.host.imex import Imex, ImexNotReady
from tests.gpus import DriverError, FakeMachine, NodeIncomplete, build_driver_root
from tests.plugin import DriverPrograms, InstalledDriver, ProgramHangs


@pytest.fixture
def imex(tmp_path: Path) -> Imex:
    build_driver_root(tmp_path / "driver", FakeMachine.open("gb200-tray"))
    programs = DriverPrograms(InstalledDriver.below(tmp_path / "driver"), tmp_path / "links")
    return Imex(programs, tmp_path / "imex.sock")


def test_it_is_ready_when_it_says_so(imex: Imex) -> None:
    assert imex.was_ready is None
    imex.check()
    assert imex.was_ready


@pytest.mark.parametrize(
    ("state", "error", "says"),
    [
        ("INITIALIZING", ImexNotReady, "not ready: INITIALIZING"),
        ("down", ImexNotReady, "Failed to connect to the IMEX daemon"),
        ("slow", ProgramHangs, IMEX_CONTROL),
    ],
)
def test_what_it_says_instead_is_told_and_it_is_asked_anew(
    imex: Imex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    error: type[DriverError],
    says: str,
) -> None:
    monkeypatch.setattr("kubeletplugin.devices.host.imex.SECONDS", 0.3)
    file = tmp_path / "driver" / IMEX_STATE
    file.write_text(state)
    with pytest.raises(error, match=says):
        imex.check()
    assert not imex.was_ready
    file.unlink()
    monkeypatch.undo()
    imex.check()
    assert imex.was_ready


def test_a_driver_without_the_program_is_named(imex: Imex, tmp_path: Path) -> None:
    (tmp_path / "driver/usr/bin" / IMEX_CONTROL).unlink()
    with pytest.raises(NodeIncomplete, match=IMEX_CONTROL):
        imex.check()
