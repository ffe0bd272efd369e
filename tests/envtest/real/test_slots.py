"""Clusters on one machine do not share ports, subnets or control groups."""

import os
from pathlib import Path

from envtest.client.layout import MAX_NODES
from envtest.real.slots import PORT_NAMES, SLOTS, Slot, take_slot

ALL = [Slot(index) for index in range(SLOTS)]
NODES = range(MAX_NODES)


def all_free(_port: int) -> bool:
    return True


def test_no_two_clusters_share_a_port() -> None:
    used = [slot.port(name) for slot in ALL for name in PORT_NAMES]
    used += [slot.kubelet_port(node) for slot in ALL for node in NODES]

    assert len(set(used)) == len(used)
    assert sorted(used) == sorted(port for slot in ALL for port in slot.ports)
    assert max(used) < 32768, "above, Linux gives ports out by itself"


def test_a_taken_slot_is_not_given_again_until_its_lock_is_closed(tmp_path: Path) -> None:
    first, first_lock = take_slot(tmp_path, all_free)
    second, second_lock = take_slot(tmp_path, all_free)
    assert first != second

    os.close(first_lock)
    again, again_lock = take_slot(tmp_path, all_free)

    assert again == first
    os.close(second_lock)
    os.close(again_lock)


def test_slots_with_a_port_in_use_are_passed_over(tmp_path: Path) -> None:
    in_use = {Slot(0).port("kube-apiserver"), Slot(1).kubelet_port(MAX_NODES - 1)}

    slot, lock = take_slot(tmp_path, lambda port: port not in in_use)

    assert slot == Slot(2)
    os.close(lock)
