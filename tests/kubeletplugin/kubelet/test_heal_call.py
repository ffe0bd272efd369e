"""An admin's call for a heal is answered step by step, and who goes away calls it off."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest

from driver.nvml.pci_address import PciAddress
from kubeletplugin.kubelet.node_state import NODE_STATE_V1, NodeStateBoard
from kubeletplugin.kubelet.wire.heal import HealProgress, HealRequest, HoldingClaim, UsingProcess
from proto import node_state_v1_pb2 as v1
from tests.kubeletplugin.fake_kubelet import FakeKubelet
from tests.kubeletplugin.kubelet.test_node_state import served

GPU = PciAddress(0, 0x8A, 0, 0)
METHOD = f"/{NODE_STATE_V1}/Heal"
ASKED = v1.HealRequest(gpu=str(GPU), reset=True, wait_seconds=60)
SEEN = HealProgress(
    "waits",
    (GPU,),
    (HoldingClaim("team", "train", "uid-1"),),
    (UsingProcess(17, "python", "pod-1"),),
    "why",
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
    assert wishes == [HealRequest(str(GPU), reset=True, wait_seconds=60.0)]
    assert waits == v1.HealProgress(
        step="waits",
        pci_bus_ids=["0000:8a:00.0"],
        claims=[v1.HoldingClaim(namespace="team", name="train", uid="uid-1")],
        processes=[v1.UsingProcess(process_id=17, name="python", pod_uid="pod-1")],
        message="why",
    )
    assert healed.step == "healed"


def test_before_anybody_can_the_call_fails() -> None:
    with served(NodeStateBoard()) as connection, pytest.raises(grpc.RpcError) as failed:
        steps(connection)
    assert failed.value.code().name == "UNAVAILABLE"


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


def test_nobody_waits_longer_than_an_hour() -> None:
    wishes: list[HealRequest] = []

    def heal(wish: HealRequest) -> Iterator[HealProgress]:
        wishes.append(wish)
        yield HealProgress("failed")

    board = NodeStateBoard()
    board.set_heal(heal)
    with served(board) as connection:
        steps(connection, v1.HealRequest(gpu="x", reset=True, wait_seconds=2**31))
    assert wishes[0].wait_seconds == 3600.0
