"""The image of a working tree is built once, and anew when anything changes that goes into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.testbed.driver_image import content_key


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkout with a licence and one module."""
    root = tmp_path / "source"
    (root / "deploy/image").mkdir(parents=True)
    (root / "deploy/image/Dockerfile.dockerignore").write_text("*\n!LICENSE\n!driver\n**/__pycache__\n")
    (root / "LICENSE").write_text("licence")
    (root / "driver" / "__pycache__").mkdir(parents=True)
    (root / "driver" / "module.py").write_text("one = 1\n")
    return root


def test_only_what_the_dockerfile_may_copy_counts(source: Path) -> None:
    before = content_key(source)
    (source / "tests").mkdir()
    (source / "tests" / "test_module.py").write_text("")
    (source / "driver" / "__pycache__" / "module.pyc").write_text("")
    assert content_key(source) == before

    (source / "LICENSE").write_text("another licence")
    assert content_key(source) != before
