"""Stands for the binaries of Kubernetes where a scenario runs without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from envtest.real.assets import ASSETS_VARIABLE, BINARIES
from envtest.real.build import DEFAULT_KUBERNETES


def pretend_binaries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have programs found that say nothing but their version, so that nothing is built."""
    folder.mkdir()
    for name in BINARIES:
        program = folder / name
        program.write_text(f"#!/bin/sh\necho Kubernetes v{DEFAULT_KUBERNETES}.0\n")
        program.chmod(0o755)
    monkeypatch.setenv(ASSETS_VARIABLE, str(folder))
