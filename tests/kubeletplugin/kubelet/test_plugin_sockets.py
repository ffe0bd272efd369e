"""The plugin's sockets open and close in order, and calls that come too early wait."""

import threading
from contextlib import ExitStack

import pytest

from kubeletplugin.early_sockets import LateClaims
from kubeletplugin.kubelet.health_stream import TIMEOUT_SECONDS
from kubeletplugin.kubelet.plugin_sockets import KubeletContact, open_sockets
from kubeletplugin.kubelet.wire.claim_call import Call
from kubeletplugin.process_inputs import Intervals
from tests.clusters import Metrics, Service
from tests.gpus import ClaimBlocked, ConfigError
from tests.kubeletplugin.fake_kubelet import FakeClaims, running_plugin, short_folder
from tests.plugin import READY_PART, ClaimRef, HealthBoard, NodeStateBoard


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


CONTACTS = {
    "it is up from the kubelet's word on": (["no", "yes"], [False, True]),
    "a stream without a registration is not enough": (["begins", "yes", "ends"], [False, True, False]),
    "after a restart it registers again": (["yes", "begins", "ends", "yes"], [True, True, False, True]),
    "a stream that comes back is enough": (["yes", "begins", "ends", "begins"], [True, True, False, True]),
    "one stream of two may end": (["yes", "begins", "begins", "ends"], [True] * 4),
}


@pytest.mark.parametrize(("events", "states"), CONTACTS.values(), ids=CONTACTS)
def test_the_kubelet_is_there_from_its_word_on_while_it_listens(
    events: list[str], states: list[bool]
) -> None:
    up: list[bool] = []
    contact = KubeletContact(lambda: up.append(True), lambda: up.append(False))
    streams, seen = list[ExitStack](), list[bool]()
    for event in events:
        if event == "begins":
            streams.append(ExitStack())
            streams[-1].enter_context(contact.stream())
        elif event == "ends":
            streams.pop().close()
        else:
            contact.registered(event == "yes")
        seen.append(up[-1])
    assert seen == states


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
