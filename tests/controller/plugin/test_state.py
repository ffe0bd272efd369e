"""What the plugins tell of the node is known at once, and stays known while none of them tells."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from controller.plugin.state import read_state, union
from proto import node_state_v1_pb2 as v1
from tests.controller.fake_plugin import FakePlugin, watching
from tests.gpus import BlockedPlacement, Healed, NodeState, PciAddress, Placement

GPU = PciAddress(0, 0x8A, 0, 0)


def held(*names: str) -> v1.State:
    return v1.State(held=names)


def test_the_state_stays_when_the_plugin_ends_and_until_the_next_one_tells(tmp_path: Path) -> None:
    socket = tmp_path / "dra.sock"
    with watching(tmp_path) as told:
        with FakePlugin(socket, state=held("a")):
            assert told.comes_to(("a",))
            assert told.serves_now(1)
        assert told.serves_now(0)
        socket.unlink(missing_ok=True)
        with FakePlugin(socket, state=held("b")):
            assert told.comes_to(("a",), ("b",))


def test_of_two_plugins_each_counts_while_it_lives(tmp_path: Path) -> None:
    with FakePlugin(tmp_path / "dra-old.sock", state=held("a")) as old, watching(tmp_path) as told:
        assert told.comes_to(("a",))
        with FakePlugin(tmp_path / "dra-new.sock", state=held("b")):
            assert told.comes_to(("a",), ("a", "b"))
            old.end()
            assert told.comes_to(("a",), ("a", "b"), ("b",))


def test_another_driver_of_the_name_tells_nothing_of_the_node(tmp_path: Path) -> None:
    socket = tmp_path / "dra.sock"
    other = grpc.server(ThreadPoolExecutor(max_workers=2))
    other.add_insecure_port(f"unix:{socket}")
    other.start()
    with watching(tmp_path) as told:
        with FakePlugin(tmp_path / "dra-ours.sock", state=held("a")):
            assert told.comes_to(("a",))
        other.stop(None).wait()
        socket.unlink(missing_ok=True)
        with FakePlugin(socket, state=held("b")):
            assert told.comes_to(("a",), ("b",))


def test_blocks_are_read_with_their_places_and_gpus_that_were_reset_with_the_time() -> None:
    message = v1.State(
        held=["a"],
        blocked=[
            v1.BlockedPlacement(
                pci_bus_id=str(GPU), span=v1.Span(start=0, size=4), reason="in-use", message="why"
            ),
            v1.BlockedPlacement(pci_bus_id=str(GPU), reason="foreign-instance"),
        ],
        healed=[v1.Healed(pci_bus_id=str(GPU), boottime_milliseconds=1_700_000_000_123)],
    )
    assert read_state(message.SerializeToString()) == NodeState(
        ("a",),
        (
            BlockedPlacement(GPU, Placement(0, 4), "in-use", "why"),
            BlockedPlacement(GPU, None, "foreign-instance", ""),
        ),
        healed=(Healed(GPU, 1_700_000_000_123),),
    )


def test_a_plugin_that_tells_nonsense_is_asked_again_and_the_watch_goes_on(tmp_path: Path) -> None:
    nonsense = v1.State()
    nonsense.blocked.add(pci_bus_id="nonsense")
    with FakePlugin(tmp_path / "dra.sock", state=nonsense) as plugin, watching(tmp_path) as told:
        with plugin.changed:
            assert plugin.changed.wait_for(lambda: len(plugin.controllers) >= 2, 10)
        plugin.tell(held("a"))
        assert told.comes_to(("a",))


def test_what_a_plugin_is_busy_with_ends_with_it_and_what_it_holds_does_not(tmp_path: Path) -> None:
    with watching(tmp_path) as told:
        state = v1.State(held=["a"], busy=[str(GPU)])
        with FakePlugin(tmp_path / "dra.sock", state=state):
            assert told.comes_to(("a",))
        assert told.comes_to(("a",), ("a",))
    assert [state.busy for state in told.states] == [(GPU,), ()]


def test_a_union_does_not_depend_on_the_order() -> None:
    one = NodeState(("b",), (BlockedPlacement(GPU, None, "in-use", ""),))
    other = NodeState(("a", "b"), (BlockedPlacement(GPU, Placement(1, 1), "in-use", ""), *one.blocked))

    assert union([one, other]) == union([other, one])
    assert union([one, other]).held == ("a", "b")
    assert len(union([one, other]).blocked) == 2


def test_of_what_two_plugins_have_healed_the_last_time_counts() -> None:
    other = PciAddress(0, 0x07, 0, 0)
    first = NodeState(healed=(Healed(GPU, 3), Healed(other, 1)))
    second = NodeState(healed=(Healed(GPU, 2),))
    assert union([first, second]).healed == (Healed(other, 1), Healed(GPU, 3))
    assert union([second, first]) == union([first, second])
