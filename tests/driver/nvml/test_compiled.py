"""The binding over a compiled library keeps the contract: structures and arguments are those of C."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from driver.nvml.api import Nvml
from driver.nvml.real import RealNvml
from driver.roots.driver_roots import DriverRoots
from fakegpu.machine import FakeMachine
from tests.driver.nvml.contract import CLAUSES
from tests.nvml_library.library import NvmlDouble, compile_nvml

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler for C is here")

MACHINE = "l40s-octo"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_nvml(tmp_path_factory.mktemp("library") / "nvml.so")


@pytest.fixture
def root(tmp_path: Path, compiled: Path) -> Path:
    """A driver root with a library of its own: the linker keeps what it has loaded."""
    NvmlDouble.lay(tmp_path, FakeMachine.open(MACHINE), compiled).any_folder()
    return tmp_path


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_binding_keeps_the_contract(root: Path, clause: Callable[[Nvml], None]) -> None:
    clause(RealNvml(DriverRoots.fixed(root)))
