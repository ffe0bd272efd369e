"""A machine in a file with its programs, for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakegpu.programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Eight A100, without a daemon of MPS; one that a test starts ends with it."""
    programs = Programs(tmp_path, "dgx-a100")
    yield programs
    programs.end()
