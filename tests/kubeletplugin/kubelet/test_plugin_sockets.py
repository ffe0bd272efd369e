"""The plugin opens the service before the registration, and closes in the other order."""

from __future__ import annotations

import threading

import pytest

from driver.errors import ConfigError
from driver.process.metrics import Metrics
from driver.process.service import Service
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.kubelet.plugin_sockets import READY_PART, open_sockets
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from tests.kubeletplugin.fake_kubelet import FakeClaims, FakeKubelet, running_plugin, short_folder


def test_the_kubelet_finds_the_service_where_the_registration_says() -> None:
    with running_plugin() as plugin:
        assert plugin.registration_socket.is_socket()
        with FakeKubelet(plugin.service_socket) as kubelet:
            assert kubelet.prepare("train")["uid-train"].error == ""


def test_no_socket_and_no_thread_is_left_after_a_stop() -> None:
    with running_plugin() as plugin:
        plugin.sockets.serving.up(READY_PART)
        plugin.service.stop()
        assert not plugin.service_socket.exists()
        assert not plugin.registration_socket.exists()
        assert "registration" not in {thread.name for thread in threading.enumerate()}
        assert not plugin.sockets.serving.state.value


def test_the_kubelet_is_not_invited_when_the_service_cannot_be_served() -> None:
    with short_folder() as folder:
        (folder / "dra.sock").write_text("in the way")
        service = Service()
        with pytest.raises(ConfigError, match="is not a socket"):
            open_sockets(
                service,
                driver="gpu.nvidia.com",
                service_socket=folder / "dra.sock",
                registration_socket=folder / "reg.sock",
                claims=FakeClaims(),
                board=HealthBoard(),
                state=NodeStateBoard(),
                metrics=Metrics(),
            )
        assert not (folder / "reg.sock").exists()
        service.stop()
