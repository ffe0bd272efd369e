"""What a cluster that starts does not show of its components' users, command lines and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from envtest.client.layout import ClusterLayout
from envtest.real import commands
from envtest.real.control_plane import make_users
from envtest.real.slots import Slot

LAYOUT = ClusterLayout(Path("/state"))
SLOT = Slot(3)


def flags(arguments: list[str]) -> dict[str, str]:
    """The flags of a command line by name; a bare flag has an empty value."""
    return {name.lstrip("-"): value for name, _, value in (entry.partition("=") for entry in arguments)}


def test_users_have_tokens_of_their_own_and_nodes_are_in_the_nodes_group() -> None:
    users = make_users(2)

    assert len({user.token for user in users.values()}) == len(users) == 5
    assert users["node-1"].name == "system:node:node-1"
    assert users["node-1"].group == "system:nodes"
    assert {name for name, user in users.items() if user.group == "system:masters"} == {"admin"}


def test_the_same_feature_gates_are_on_everywhere() -> None:
    more = ("DRAListTypeAttributes",)
    parts = [
        commands.kube_apiserver(LAYOUT, SLOT, "192.0.2.7", more, audit=False),
        commands.kube_controller_manager(LAYOUT, SLOT, more),
        commands.kube_scheduler(LAYOUT, SLOT, more),
    ]

    gates = "DRADeviceTaintRules=true,DRAListTypeAttributes=true"
    assert {flags(part)["feature-gates"] for part in parts} == {gates}


@pytest.mark.parametrize(("address", "bound"), [("192.0.2.7", "0.0.0.0"), ("127.0.0.1", "127.0.0.1")])  # noqa: S104
def test_pods_reach_an_api_server_with_nodes_and_nobody_else_one_without(address: str, bound: str) -> None:
    assert flags(commands.kube_apiserver(LAYOUT, SLOT, address, audit=False))["bind-address"] == bound
