"""Says where the project's packages lie, and how a process runs them.

The manifests and the classes come along with the packages.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
"""The folder of a checkout, or that of an installation: ``deploy`` and ``deviceclasses`` lie in both."""


def python_command(*arguments: str) -> tuple[str, ...]:
    """This interpreter with arguments such as ``-m``; what lies in the working folder is not imported."""
    return (sys.executable, "-P", *arguments)


def python_environment(packages: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variable that makes a process import the packages of this folder rather than any others."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(packages), environment.get("PYTHONPATH")]))}
