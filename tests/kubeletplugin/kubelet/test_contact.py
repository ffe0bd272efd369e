"""The plugin counts as served while the kubelet has it registered, and not while the kubelet is away."""

from __future__ import annotations

from kubeletplugin.kubelet.plugin_sockets import KubeletContact


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
