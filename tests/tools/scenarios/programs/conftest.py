"""A cluster with one node that holds shares to their memory, for the programs of a scenario."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envtest.client.shipped import PACKAGE_ROOT
from tests.tools.scenarios.kubernetes_binaries import pretend_binaries
from tools.scenarios.description import Node, Wanted
from tools.scenarios.places.place import Place, built_place

CONFIG = PACKAGE_ROOT / "deploy/scenarios/memory-limits/node.yaml"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The place, built once for a module."""
    wanted = Wanted((Node("l4-quad"),), CONFIG.read_text(), frozenset({"upgrades"}))
    with pytest.MonkeyPatch.context() as patch:
        pretend_binaries(tmp_path_factory.mktemp("kubernetes") / "bin", patch)
        with built_place(wanted, "embedded") as place:
            yield place


@pytest.fixture
def place(built: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The place, found by programs that run in this process."""
    assert built.cluster is not None
    monkeypatch.setenv("KUBECONFIG", str(built.cluster.admin))
    for name, value in built.environment.items():
        monkeypatch.setenv(name, value)
    return built
