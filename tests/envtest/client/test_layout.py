"""A cluster's folder is short enough for the sockets in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from envtest.client.errors import ClusterError
from envtest.client.layout import (
    LONGEST_SOCKET,
    MAX_NODES,
    MAX_SOCKET_PATH_BYTES,
    state_folder,
)


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
