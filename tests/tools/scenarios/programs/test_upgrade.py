"""scenario-upgrade replaces the driver's processes on a node, again and again, and says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from driver.errors import NodeIncomplete
from tools.scenarios.places.place import Place
from tools.scenarios.programs import node_of_fakes, upgrade, upgrade_socket

PLUGIN = "kubeletplugin-node-0"


def running(place: Place) -> set[tuple[str, int]]:
    """The processes of the driver that run, with their process ids."""
    assert place.cluster is not None
    processes = place.cluster.processes
    found = [processes.named(name) for name in processes.names() if name.endswith(("-node-0", "-second"))]
    return {(one.name, one.host_pid) for one in found if one.returncode is None and ".mps" not in one.name}


def test_each_upgrade_leaves_one_plugin_and_one_controller_that_are_new(place: Place) -> None:
    seen = [running(place)]
    for _ in range(2):
        result = CliRunner().invoke(upgrade, ["node-0"], catch_exceptions=False)
        assert (result.exit_code, result.output) == (0, "the driver of node-0 is replaced\n")
        seen.append(running(place))

    plugins = [{name for name, _ in one if "plugin" in name} for one in seen]
    assert plugins == [{PLUGIN}, {f"{PLUGIN}-second"}, {PLUGIN}]
    assert all(len(one) == 2 for one in seen)
    assert not seen[0] & seen[1]
    assert not seen[1] & seen[2]


def test_a_cluster_that_was_not_asked_for_upgrades_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert place.cluster is not None
    folder = node_of_fakes("node-0").folder
    machines = tmp_path / "machines.json"
    listed = Path(place.environment["SCENARIO_MACHINES"]).read_text()
    machines.write_text(listed.replace(folder, str(tmp_path)))
    monkeypatch.setenv("SCENARIO_MACHINES", str(machines))
    assert not upgrade_socket(tmp_path).exists()

    with pytest.raises(NodeIncomplete, match=r"needs: \[upgrades\]"):
        CliRunner().invoke(upgrade, ["node-0"], catch_exceptions=False)
