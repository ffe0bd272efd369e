"""A cluster's folder is short enough for the sockets in it, and is described for others to attach."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from envtest.client.errors import ClusterError
from envtest.client.layout import (
    LONGEST_SOCKET,
    MAX_NODES,
    MAX_SOCKET_PATH_BYTES,
    ClusterLayout,
    state_folder,
)
from envtest.real import description
from envtest.real.assets import Assets
from envtest.real.control_plane import make_users
from envtest.real.description import Description
from envtest.real.slots import Slot
from envtest.real.startup import make_folder


def test_longest_folder_has_room_for_the_registration_socket_of_a_driver() -> None:
    room = MAX_SOCKET_PATH_BYTES - len(LONGEST_SOCKET) - 1
    longest = Path("/" + "x" * (room - 1))
    node = state_folder(longest).node(MAX_NODES - 1)

    assert len(str(node.registry_dir / "gpu.nvidia.com-reg.sock")) == MAX_SOCKET_PATH_BYTES
    assert len(str(node.containerd_socket)) <= MAX_SOCKET_PATH_BYTES
    with pytest.raises(ClusterError, match=f"at most {room} bytes"):
        state_folder(Path("/" + "x" * room))


def test_length_counts_bytes_not_characters() -> None:
    with pytest.raises(ClusterError, match="too long"):
        state_folder(Path("/" + "ü" * 30))


def test_folder_in_use_is_refused_and_what_is_in_it_named(short_folder: Path) -> None:
    (short_folder / "thesis.tex").touch()
    short_folder.chmod(0o755)

    with pytest.raises(ClusterError, match=r"is in use \(it holds thesis\.tex\)"):
        make_folder(short_folder)
    assert stat.S_IMODE(short_folder.stat().st_mode) == 0o755


def test_folder_with_the_logs_of_an_earlier_cluster_can_be_used_again_by_root_alone(
    short_folder: Path,
) -> None:
    (short_folder / "logs").mkdir()
    short_folder.chmod(0o755)

    assert make_folder(short_folder).folder == short_folder
    assert stat.S_IMODE(short_folder.stat().st_mode) == 0o700


def test_folder_is_made_when_there_is_none(short_folder: Path) -> None:
    layout = make_folder(short_folder / "new")

    assert stat.S_IMODE(layout.folder.stat().st_mode) == 0o700


def test_description_is_read_back_as_it_was_saved(short_folder: Path) -> None:
    layout = ClusterLayout(short_folder)
    assets = Assets(Path("/binaries"), "1.36")
    saved = Description(layout, Slot(5), assets, make_users(2), node_count=2, audit=True)

    description.save(saved)

    loaded = description.load(short_folder)
    assert loaded.users == saved.users
    assert loaded == saved
    assert stat.S_IMODE(layout.tokens.stat().st_mode) == 0o600


def test_folder_without_a_cluster_is_named(short_folder: Path) -> None:
    with pytest.raises(ClusterError, match="there is no cluster in"):
        description.load(short_folder)
