"""The tar of a report: the same bytes for the same members, bounded, and read with distrust."""

import gzip
import io
import tarfile

import pytest

from gpuctl.gather.archive import (
    FOLDER,
    LEFT_OUT,
    MOST_BYTES,
    MOST_MEMBER_BYTES,
    Member,
    is_safe_path,
    read_archive,
    write_archive,
)
from tests.gpus import ConfigError

MEMBERS = (Member("b.txt", b"two"), Member("a/one.txt", b"one"))


def heads(data: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        return tar.getmembers()


def test_two_reports_differ_in_their_times_alone() -> None:
    early, late = (write_archive(MEMBERS, now) for now in (1000.0, 2000.0))

    assert early != late
    assert read_archive(early) == read_archive(late) == tuple(sorted(MEMBERS, key=lambda one: one.name))


def test_members_are_for_their_owner_alone_and_name_nobody() -> None:
    for head in heads(write_archive(MEMBERS, 1000.0)):
        assert (head.mode, head.uid, head.gid, head.uname, head.gname) == (0o600, 0, 0, "", "")
        assert head.name.startswith(f"{FOLDER}/")


def test_a_member_that_is_too_long_is_cut_and_says_so() -> None:
    [member] = read_archive(write_archive([Member("log", b"x" * (MOST_MEMBER_BYTES + 1))], 1.0))

    assert len(member.data) == MOST_MEMBER_BYTES
    assert member.data.endswith(b"... cut: it was longer\n")


def test_what_finds_no_room_is_left_out_and_named() -> None:
    many = [Member(f"log-{number:02}", b"x" * MOST_MEMBER_BYTES) for number in range(17)]

    found = {one.name: one.data for one in read_archive(write_archive(many, 1.0))}

    assert sum(len(data) for name, data in found.items() if name != LEFT_OUT) <= MOST_BYTES
    assert found[LEFT_OUT] == b"no room for:\nlog-15\nlog-16\n"


@pytest.mark.parametrize("name", ["../up", "a/../../b", "/etc/passwd", "a//b", ".", "a\nb", "a b", ""])
def test_a_path_that_leads_elsewhere_is_refused(name: str) -> None:
    assert not is_safe_path(name)


def tar_of(name: str, *, kind: bytes = tarfile.REGTYPE, size: int | None = None) -> bytes:
    """What a hostile node might send."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        head = tarfile.TarInfo(name)
        head.type, head.size, head.linkname = kind, 0, "/etc/shadow"
        tar.addfile(head)
    data = bytearray(plain.getvalue())
    if size is not None:
        head.size = size
        data[:512] = head.tobuf()
    return gzip.compress(bytes(data))


@pytest.mark.parametrize(
    "data",
    [
        tar_of("../../etc/cron.d/x"),
        tar_of(f"{FOLDER}/x", kind=tarfile.SYMTYPE),
        tar_of(f"{FOLDER}/x", kind=tarfile.CHRTYPE),
        tar_of(f"{FOLDER}/x", size=MOST_BYTES + 1),
        b"no tar at all",
        gzip.compress(b"neither"),
        b"",
    ],
    ids=["path", "link", "device", "large", "no gzip", "no tar", "empty"],
)
def test_what_a_node_must_not_send_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        read_archive(data)
