"""Says where the project's packages are, manifests and classes beside them, and how a process runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
"""The root of a checkout, or site-packages: ``deploy`` and ``deviceclasses`` are in both."""


def python_command(*arguments: str) -> tuple[str, ...]:
    """This interpreter with arguments such as ``-m``; it does not import from the working folder (-P)."""
    return (sys.executable, "-P", *arguments)


def python_environment(packages: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variable that makes a process import the packages of this folder rather than any others."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(packages), environment.get("PYTHONPATH")]))}
