"""Specs of claims lie in the runtime's folder, and are written there as its watch needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driver.errors import StorageError
from kubeletplugin.claims.cdi.store import CdiStore

_renames: list[tuple[Path, Path]] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event == "os.rename":
        _renames.append((Path(args[0]), Path(args[1])))


sys.addaudithook(_audit)


def test_a_spec_is_renamed_within_its_folder_from_a_name_that_is_no_specs(tmp_path: Path) -> None:
    """The watch of a runtime sees the old name go; it does not see a file come that it never saw."""
    _renames.clear()
    CdiStore(tmp_path).write("u-1", b"{}")
    ((unfinished, finished),) = [names for names in _renames if names[1].parent == tmp_path]
    assert unfinished.parent == finished.parent
    assert unfinished.suffix not in (".json", ".yaml")
    assert finished.name == "k8s.gpu.nvidia.com-claim_u-1.json"


def test_a_spec_is_there_until_it_is_removed(tmp_path: Path) -> None:
    store = CdiStore(tmp_path)
    assert (store.read("u-1"), store.uids()) == (None, ())
    store.write("u-2", b"{}")
    store.write("u-1", b"[]")
    assert (store.read("u-1"), store.uids()) == (b"[]", ("u-1", "u-2"))
    assert (tmp_path / "k8s.gpu.nvidia.com-claim_u-1.json").stat().st_mode & 0o444 == 0o444
    for _ in range(2):
        store.remove("u-1")
    assert store.uids() == ("u-2",)


def test_files_of_others_are_no_claims(tmp_path: Path) -> None:
    prefix = "k8s.gpu.nvidia.com-claim_"
    for name in (
        f"{prefix}.json",
        f"{prefix}u-1.yaml",
        f"{prefix}u 1.json",
        "vendor.com-gpu.json",
        "u-1.json",
    ):
        (tmp_path / name).touch()
    (tmp_path / f".tmp-{prefix}u-1.json-0123456789ab").touch()
    assert CdiStore(tmp_path).uids() == ()
    assert len(os.listdir(tmp_path)) == 6


def test_what_the_disk_refuses_names_the_file(tmp_path: Path) -> None:
    store = CdiStore(tmp_path)
    (tmp_path / "k8s.gpu.nvidia.com-claim_u-1.json").mkdir()
    uses: tuple[Callable[[], object], ...] = (
        lambda: store.read("u-1"),
        lambda: store.write("u-1", b""),
        lambda: store.remove("u-1"),
    )
    for use in uses:
        with pytest.raises(StorageError, match=r"claim_u-1\.json failed"):
            use()
