"""Says where the project's packages lie, and the manifests and classes that come along with them."""

from __future__ import annotations

from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
"""The folder of a checkout, or that of an installation: ``deploy`` and ``deviceclasses`` lie in both."""
