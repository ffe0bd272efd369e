"""The page about scenarios names all that a scenario can ask for and use."""

from __future__ import annotations

import pytest

from envtest.client.shipped import PACKAGE_ROOT
from tools.scenarios.places.needs import NEEDS
from tools.scenarios.places.place import PROGRAMS

PAGE = (PACKAGE_ROOT / "docs" / "scenarios.md").read_text()


@pytest.mark.parametrize("need", sorted(NEEDS))
def test_every_need_is_told(need: str) -> None:
    assert f"`{need}`" in PAGE


@pytest.mark.parametrize("program", sorted(name for name in PROGRAMS if name.startswith("scenario-")))
def test_every_program_is_told(program: str) -> None:
    assert f"| `{program} " in PAGE
