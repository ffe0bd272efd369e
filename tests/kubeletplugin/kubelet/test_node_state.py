"""The controller hears what claims hold and what is blocked; an admin's heal is answered step by step."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from controller.plugin.state import read_state
from kubeletplugin.kubelet.node_state import NODE_STATE_V1, answer, handlers
from kubeletplugin.kubelet.wire.heal import HoldingClaim
from proto import node_state_v1_pb2 as v1
from tests.gpus import BlockedPlacement, ClaimBlocked, Healed, NodeState, PciAddress, Placement
from tests.kubeletplugin.fake_kubelet import FakeKubelet, short_folder
from tests.plugin import HealProgress, HealRequest, NodeStateBoard, SocketServer, UsingProcess

GPU = PciAddress(0, 0x8A, 0, 0)
HELD = NodeState(held=("gpu-0000-8a-00-0-mig-1g-10gb-6",))


@contextmanager
def served(board: NodeStateBoard) -> Iterator[FakeKubelet]:
    """A connection to a socket at which only the node's state is served."""
    with short_folder() as folder, ThreadPoolExecutor(8) as pool:
        server = SocketServer(folder / "dra.sock", handlers(board), pool)
        server.start()
        try:
            with FakeKubelet(folder / "dra.sock") as connection:
                yield connection
        finally:
            board.close()
            server.stop(0)


def enable(connection: FakeKubelet, gpu: str) -> v1.EnableVirtualFunctionsResponse:
    request = v1.EnableVirtualFunctionsRequest(pci_bus_id=gpu)
    method = f"/{NODE_STATE_V1}/EnableVirtualFunctions"
    return connection.call(method, request, v1.EnableVirtualFunctionsResponse)


def test_virtual_functions_are_turned_on_when_the_controller_asks_or_it_is_told_why_not() -> None:
    board, asked = NodeStateBoard(), list[PciAddress]()

    def enable_once(pci: PciAddress) -> None:
        asked.append(pci)
        if len(asked) > 1:
            raise ClaimBlocked(f"{pci} is in use", "end what uses it")

    board.set_enable_virtual(enable_once)
    with served(board) as connection:
        assert enable(connection, str(GPU)).failure == ""
        assert "0000:8a:00.0 is in use" in enable(connection, str(GPU)).failure
    assert asked == [GPU, GPU]


@pytest.mark.parametrize(("gpu", "code"), [("0000:8a:00.0", "UNAVAILABLE"), ("../x", "INVALID_ARGUMENT")])
def test_before_anybody_can_and_for_what_is_no_address_the_call_fails(gpu: str, code: str) -> None:
    board = NodeStateBoard()
    with served(board) as connection:
        with pytest.raises(grpc.RpcError) as failed:
            enable(connection, gpu)
        assert failed.value.code().name == code
        with pytest.raises(grpc.RpcError) as failed:
            steps(connection)
        assert failed.value.code().name == "UNAVAILABLE"


def test_the_state_is_told_as_the_controller_reads_it() -> None:
    """A block at the first slice must not be taken for one of the whole GPU."""
    blocked = (
        BlockedPlacement(GPU, Placement(0, 2), "in-use", "process 17 uses it"),
        BlockedPlacement(GPU, None, "foreign-instance", "GPU instance 3 is somebody else's"),
    )
    state = NodeState(("gpu",), blocked, busy=(GPU,), healed=(Healed(GPU, 1_700_000_000_123),))
    assert read_state(answer(state).SerializeToString()) == state


def test_a_controller_that_listens_is_asked_to_let_go_and_its_answer_is_heard() -> None:
    board = NodeStateBoard()
    board.update(HELD)
    request = v1.WatchRequest(controller="controller-a")
    with (
        served(board) as connection,
        connection.stream(f"/{NODE_STATE_V1}/Watch", request, v1.State) as states,
        ThreadPoolExecutor(1) as pool,
    ):
        assert next(states).let_go == 0

        def ask() -> None:
            with board.controllers.letting_go(10.0):
                board.update(NodeState())

        asking = pool.submit(ask)
        asked = next(states)
        assert (asked.let_go, list(asked.held)) == (1, list(HELD.held))
        answered = v1.HasLetGoRequest(controller="controller-a", let_go=1)
        connection.call(f"/{NODE_STATE_V1}/HasLetGo", answered, v1.HasLetGoResponse)
        asking.result(10)
        told = [next(states)]
        while told[-1].let_go:
            told.append(next(states))
        assert list(told[-1].held) == []


METHOD = f"/{NODE_STATE_V1}/Heal"
ASKED = v1.HealRequest(gpu=str(GPU), reset=True, wait_seconds=60)
SEEN = HealProgress(
    "waits", (GPU,), (HoldingClaim("team", "train", "uid-1"),), (UsingProcess(17, "python", "pod-1"),), "why"
)


def steps(connection: FakeKubelet, request: v1.HealRequest = ASKED) -> list[v1.HealProgress]:
    with connection.stream(METHOD, request, v1.HealProgress) as told:
        return list(told)


def test_each_step_is_told_with_all_that_is_in_the_way() -> None:
    wishes: list[HealRequest] = []

    def heal(wish: HealRequest) -> Iterator[HealProgress]:
        wishes.append(wish)
        yield SEEN
        yield HealProgress("healed", (GPU,))

    board = NodeStateBoard()
    board.set_heal(heal)
    with served(board) as connection:
        waits, healed = steps(connection)
        steps(connection, v1.HealRequest(gpu="x", reset=True, wait_seconds=2**31))
    assert wishes[0] == HealRequest(str(GPU), reset=True, wait_seconds=60.0)
    assert wishes[1].wait_seconds == 3600.0, "nobody waits longer than an hour"
    assert waits == v1.HealProgress(
        step="waits",
        pci_bus_ids=["0000:8a:00.0"],
        claims=[v1.HoldingClaim(namespace="team", name="train", uid="uid-1")],
        processes=[v1.UsingProcess(process_id=17, name="python", pod_uid="pod-1")],
        message="why",
    )
    assert healed.step == "healed"


def test_who_goes_away_calls_it_off() -> None:
    ended = threading.Event()

    def heal(_wish: HealRequest) -> Iterator[HealProgress]:
        try:
            while True:
                yield SEEN
                gone.wait(0.01)
        finally:
            ended.set()

    gone = threading.Event()
    board = NodeStateBoard()
    board.set_heal(heal)
    with served(board) as connection:
        with connection.stream(METHOD, ASKED, v1.HealProgress) as told:
            next(told)
        assert ended.wait(30)
