"""Gives each test a pynvml that has loaded nothing: its library is a variable of the module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def _unload() -> None:
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - pynvml has no way to unload


@pytest.fixture(autouse=True)
def _unloaded_pynvml() -> Iterator[None]:
    _unload()
    yield
    _unload()
