"""The stubs are those of the .proto files, and their wire form is the kubelet's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proto import generate


def test_the_stubs_are_fresh() -> None:
    assert generate.stale() == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the folder with its stubs."""
    target = tmp_path / "proto"
    shutil.copytree(generate.PROTO_FOLDER, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def test_a_changed_source_makes_its_stubs_stale(folder: Path) -> None:
    source = folder / "dra_v1.proto"
    source.write_text(source.read_text().replace("string uid = 2;", "string uid = 4;"))
    assert generate.stale(folder) == ["dra_v1_pb2.py"]


def test_a_missing_and_a_left_over_stub_are_stale(folder: Path) -> None:
    (folder / "dra_v1_pb2.pyi").unlink()
    (folder / "gone_pb2.py").write_text("")
    assert generate.stale(folder) == ["dra_v1_pb2.pyi", "gone_pb2.py"]


def test_a_broken_source_is_an_error(folder: Path) -> None:
    (folder / "broken.proto").write_text("syntax = 'proto3'; message {")
    with pytest.raises(RuntimeError, match="protoc refused"):
        generate.stale(folder)


def test_the_check_on_the_command_line_succeeds_silently() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proto.generate", "--check"],
        cwd=generate.PROTO_FOLDER.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
