"""The plugin's sockets open and close in order, and calls that come too early wait."""

from __future__ import annotations

import threading

import pytest

from driver.errors import ClaimBlocked, ConfigError
from driver.process.metrics import Metrics
from driver.process.service import Service
from kubeletplugin.early_sockets import LateClaims
from kubeletplugin.kubelet.health_stream import TIMEOUT_SECONDS
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.kubelet.plugin_sockets import READY_PART, KubeletContact, open_sockets
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from kubeletplugin.process_inputs import Intervals
from tests.kubeletplugin.fake_kubelet import FakeClaims, FakeKubelet, running_plugin, short_folder


def test_the_kubelet_finds_the_service_where_the_registration_says() -> None:
    with running_plugin() as plugin:
        assert plugin.registration_socket.is_socket()
        with FakeKubelet(plugin.service_socket) as kubelet:
            assert kubelet.prepare("train")["uid-train"].error == ""


def test_no_socket_is_left_after_a_stop() -> None:
    with running_plugin() as plugin:
        plugin.sockets.serving.up(READY_PART)
        plugin.service.stop()
        assert not plugin.service_socket.exists()
        assert not plugin.registration_socket.exists()
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


class State:
    """Remembers the last word."""

    def __init__(self) -> None:
        self.words: list[bool] = []
        self.contact = KubeletContact(lambda: self._set(up=True), lambda: self._set(up=False))

    def _set(self, *, up: bool) -> None:
        self.words.append(up)

    def is_up(self) -> bool:
        return self.words[-1]


def test_it_is_up_from_the_kubelets_word_on() -> None:
    state = State()
    state.contact.registered(False)
    assert not state.is_up()
    state.contact.registered(True)
    assert state.is_up()


def test_a_stream_without_a_registration_is_not_enough() -> None:
    state = State()
    with state.contact.stream():
        assert not state.is_up()
        state.contact.registered(True)
        assert state.is_up()


def test_while_the_kubelet_restarts_it_is_down_until_it_registers_again() -> None:
    state = State()
    state.contact.registered(True)
    with state.contact.stream():
        assert state.is_up()
    assert not state.is_up()
    state.contact.registered(True)
    assert state.is_up()


def test_a_stream_that_comes_back_by_itself_is_enough() -> None:
    state = State()
    state.contact.registered(True)
    with state.contact.stream():
        pass
    with state.contact.stream():
        assert state.is_up()


def test_one_stream_of_two_may_end() -> None:
    state = State()
    state.contact.registered(True)
    with state.contact.stream():
        with state.contact.stream():
            pass
        assert state.is_up()


CLAIM = ClaimRef("team", "train", "u-1")


def call(remaining_seconds: float = 45.0) -> Call:
    return Call(0, lambda: True, lambda: remaining_seconds)


def test_a_call_that_came_early_is_done_when_the_plugin_is_ready() -> None:
    late, claims = LateClaims(), FakeClaims()
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(late.prepare(CLAIM, call(float("inf")))))
    thread.start()

    late.ready(claims)
    thread.join(10)

    assert answers == [claims.prepare(CLAIM, call())]
    late.unprepare(CLAIM, call())


def test_a_call_that_waited_too_long_is_told_so() -> None:
    with pytest.raises(ClaimBlocked, match="team/train came before the plugin was ready"):
        LateClaims().unprepare(CLAIM, call(1.0))


def test_calls_that_wait_are_let_go_when_the_plugin_stops() -> None:
    late = LateClaims()
    late.close()

    with pytest.raises(ClaimBlocked):
        late.prepare(CLAIM, call())


KUBELET_CALL_SECONDS = 45.0
"""How long the kubelet waits for NodePrepareResources (pkg/kubelet/cm/dra/plugin/dra_plugin.go)."""


def test_the_gpus_are_looked_at_twice_before_the_kubelet_takes_a_device_for_unknown() -> None:
    assert 2 * Intervals().check_seconds <= TIMEOUT_SECONDS


def test_prepare_gives_up_waiting_before_the_kubelet_does() -> None:
    assert 0 < Intervals().patience_seconds < KUBELET_CALL_SECONDS
