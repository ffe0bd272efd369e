"""What a cluster that starts does not show of its components' users, command lines and files."""

from pathlib import Path

import pytest

from envtest.client.layout import ClusterLayout
from envtest.real import commands
from envtest.real.slots import Slot

LAYOUT = ClusterLayout(Path("/state"))
SLOT = Slot(3)


def flags(arguments: list[str]) -> dict[str, str]:
    """The flags of a command line by name; a bare flag has an empty value."""
    return {name.lstrip("-"): value for name, _, value in (entry.partition("=") for entry in arguments)}


@pytest.mark.parametrize(("address", "bound"), [("192.0.2.7", "0.0.0.0"), ("127.0.0.1", "127.0.0.1")])  # noqa: S104
def test_pods_reach_an_api_server_with_nodes_and_nobody_else_one_without(address: str, bound: str) -> None:
    assert flags(commands.kube_apiserver(LAYOUT, SLOT, address, audit=False))["bind-address"] == bound
