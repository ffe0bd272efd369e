"""The rules that all folders of records have in common; what damage means is the owner's."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletplugin.claims.journal.record_folder import Damage, Kept, RecordFiles, RecordFolder
from tests.gpus import StorageError
from tests.kubeletplugin.full_disk import full_after
from tests.kubeletplugin.no_descriptors import no_descriptor_left


def key_of(name: str) -> str | None:
    return name.removesuffix(".txt") if name.endswith(".txt") and name.islower() else None


def name_of(key: str) -> str:
    return f"{key}.txt"


def words(_key: str, data: bytes) -> tuple[str, ...]:
    return tuple(data.decode("ascii").split())


def written(record: tuple[str, ...]) -> bytes:
    return " ".join(record).encode()


WORDS: RecordFiles[str, tuple[str, ...]] = RecordFiles(key_of, name_of, words, written, lambda record: record)


class Owner:
    """Keeps what it is told of damage, and assumes a word in place of what is lost."""

    def __init__(
        self, folder: Path, elsewhere: Callable[[], bool] | None = None, *, late: bool = False
    ) -> None:
        first = iter([True])
        self.told: list[Damage[tuple[str, ...]]] = []
        self.files = RecordFolder(
            folder, WORDS, self._damaged, elsewhere or (lambda: next(first, False)), made_late=late
        )

    def _damaged(self, _key: str, damage: Damage[tuple[str, ...]]) -> Kept[tuple[str, ...]]:
        self.told.append(damage)
        return Kept(damage.before or ("assumed",), damage.reason)

    def record(self, key: str) -> tuple[str, ...] | None:
        known = self.files.get(key)
        return known.record if known else None


def beside_others(folder: Path) -> Owner:
    """An owner beside which others write."""
    return Owner(folder, lambda: True)


def test_a_record_is_there_after_a_restart_and_is_found_by_its_places(tmp_path: Path) -> None:
    first = Owner(tmp_path)
    assert first.files.put("a", ("x", "y")) is None
    assert first.files.put("b", ("y",)) is None
    for owner in (first, Owner(tmp_path)):
        assert list(owner.files.all()) == ["a", "b"]
        assert owner.files.at(["y"]) == (("x", "y"), ("y",))
        assert owner.files.at(["x", "z"]) == (("x", "y"),)
        assert [owner.files.count_at(place) for place in "xyz"] == [1, 2, 0]
    assert first.files.put("a", ("z",)) == ("x", "y")
    first.files.forget("b")
    assert (first.files.at(["x", "y"]), first.record("b")) == ((), None)


def test_a_lone_owner_looks_at_the_folder_once_and_one_beside_others_each_time(tmp_path: Path) -> None:
    lone, other = Owner(tmp_path), beside_others(tmp_path)
    assert (lone.record("a"), other.record("a")) == (None, None)
    Owner(tmp_path).files.put("a", ("x",))
    assert (lone.record("a"), other.record("a")) == (None, ("x",))
    assert lone.files.at_in_memory(["x"]) == ()
    (tmp_path / "a.txt").unlink()
    assert other.record("a") is None


def test_a_file_is_read_again_when_it_may_be_another_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def noting(key: str, data: bytes) -> tuple[str, ...]:
        read.append(key)
        return words(key, data)

    files = RecordFiles(key_of, name_of, noting, written, lambda record: record)
    folder: RecordFolder[str, tuple[str, ...]] = RecordFolder(
        tmp_path, files, lambda _key, _damage: None, lambda: True
    )
    (tmp_path / "a.txt").write_bytes(b"x")
    now_ns = (tmp_path / "a.txt").stat().st_mtime_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    folder.all()
    folder.all()
    assert read == ["a", "a"], "a young file may be followed by one that looks the same"
    # The second is of before the time of day was set back.
    for reads, written_ns in ((3, 0), (4, now_ns + 3600 * 10**9)):
        os.utime(tmp_path / "a.txt", ns=(0, written_ns))
        for _ in range(3):
            folder.all()
        assert read == ["a"] * reads
    (tmp_path / "a.txt").write_bytes(b"z")
    assert folder.at(["z"]) == (("z",),)


@pytest.mark.parametrize("content", [b"\xff", None], ids=["malformed", "a folder"])
def test_a_damaged_file_is_its_owners_to_judge_and_no_other_suffers(
    tmp_path: Path, content: bytes | None
) -> None:
    (tmp_path / "b.txt").write_bytes(b"x")
    if content is None:
        (tmp_path / "a.txt").mkdir()
    else:
        (tmp_path / "a.txt").write_bytes(content)
    owner = Owner(tmp_path)
    assert (owner.record("b"), owner.record("a")) == (("x",), ("assumed",))
    assert owner.files.at(["assumed"]) == (("assumed",),)
    assert {damage.path for damage in owner.told} == {tmp_path / "a.txt"}
    assert all(kept.wrong for key, kept in owner.files.all().items() if key == "a")


def test_a_damaged_file_is_read_again_until_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff")
    owner = Owner(tmp_path)
    owner.files.all()
    owner.files.all()
    assert len(owner.told) == 2
    (tmp_path / "a.txt").write_bytes(b"x")
    assert owner.files.get("a") == Kept(("x",))
    Owner(tmp_path).files.put("b", ("y",))
    assert owner.record("b") is None, "from then on nobody else writes"


def test_what_is_known_stays_at_hand_where_only_the_disk_does_not_give_the_file(tmp_path: Path) -> None:
    owner = beside_others(tmp_path)
    owner.files.put("a", ("x",))
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").mkdir()
    assert owner.record("a") == ("x",)
    (tmp_path / "a.txt").rmdir()
    (tmp_path / "a.txt").write_bytes(b"\xff")
    assert owner.record("a") == ("assumed",)
    assert [damage.before for damage in owner.told] == [("x",), None]


def test_without_file_descriptors_nothing_is_damaged_and_nothing_that_was_written_is_missed(
    tmp_path: Path,
) -> None:
    owner = Owner(tmp_path)
    Owner(tmp_path).files.put("a", ("x",))
    with pytest.raises(StorageError, match="Too many open files"), no_descriptor_left():
        owner.files.all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "listdir", lambda _: ["a.txt"])
        with pytest.raises(StorageError, match="Too many open files"), no_descriptor_left():
            owner.files.at(["x"])
    assert (owner.record("a"), owner.told) == (("x",), [])


def test_what_the_disk_refuses_is_not_remembered(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    owner.files.put("a", ("x",))
    with pytest.raises(StorageError), full_after(0, tmp_path):
        owner.files.put("a", ("y",))
    assert owner.files.at(["x", "y"]) == (("x",),)
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(StorageError):
        owner.files.forget("a")
    assert owner.record("a") == ("x",)


def test_files_of_others_are_left_alone_and_no_key_names_one_of_them(tmp_path: Path) -> None:
    for name in ("README", ".tmp-a.txt-0123456789ab", "A.txt"):
        (tmp_path / name).write_bytes(b"\xff")
    owner = Owner(tmp_path)
    assert (owner.files.all(), owner.told) == ({}, [])
    with pytest.raises(StorageError, match="cannot be the name of a file"):
        owner.files.put("A", ("x",))
    assert len(os.listdir(tmp_path)) == 3


def test_a_folder_is_made_at_once_or_with_the_first_record_and_only_then_may_it_be_missing(
    tmp_path: Path,
) -> None:
    late, at_once = Owner(tmp_path / "late", late=True), Owner(tmp_path / "once")
    assert (late.files.all(), os.listdir(tmp_path)) == ({}, ["once"])
    late.files.put("a", ("x",))
    assert (tmp_path / "late").stat().st_mode & 0o777 == 0o700
    (tmp_path / "once").rmdir()
    with pytest.raises(StorageError, match=r"listing .*once failed"):
        at_once.files.all()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"making .*file failed"):
        Owner(tmp_path / "file")
