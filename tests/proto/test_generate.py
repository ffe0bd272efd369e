"""The stubs are those of the .proto files, and their wire form is the kubelet's."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proto import generate


def test_the_stubs_are_fresh() -> None:
    assert generate.stale() == generate.stale_copies() == []


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


def test_the_stubs_and_their_copies_meet_in_one_process_in_either_order() -> None:
    names = ("proto.dra_v1_pb2", "envtest.kubelet_api.dra_v1_pb2")
    for order in (names, names[::-1]):
        use = "two.Claim.FromString(one.Claim(uid='x').SerializeToString())"
        program = f"import {order[0]} as one, {order[1]} as two; {use}"
        subprocess.run([sys.executable, "-c", program], cwd=generate.PROTO_FOLDER.parent, check=True)
