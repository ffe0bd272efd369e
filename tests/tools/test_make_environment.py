"""The environment of another checkout is not emptied. Each run of the tests shows that one is made at all."""

from pathlib import Path

import pytest

from tools.make_environment import main


def test_an_environment_that_is_a_link_to_another_one_is_not_emptied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/kept").touch()
    (tmp_path / "venv").symlink_to(tmp_path / "theirs")

    assert main([str(tmp_path / "venv")]) == 1
    assert "is a link to" in capsys.readouterr().err
    assert (tmp_path / "theirs/kept").exists()
