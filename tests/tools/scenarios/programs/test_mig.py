"""scenario-mig cuts a GPU as told, starts anew each time, and names what does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from driver.errors import NodeIncomplete
from fakegpu.machine.fake_machine import FakeMachine
from tools.scenarios.programs import mig


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """The machine of node-0, as the programs find it."""
    nvml = f"fake:hgx-h100@{tmp_path / 'state.json'}"
    listed = tmp_path / "machines.json"
    listed.write_text(json.dumps({"node-0": {"nvml": nvml, "folder": str(tmp_path), "plugins_dir": ""}}))
    monkeypatch.setenv("SCENARIO_MACHINES", str(listed))
    return FakeMachine.open(nvml)


def cut(*arguments: str) -> Result:
    return CliRunner().invoke(mig, ["node-0", *arguments], catch_exceptions=False)


def partitions(machine: FakeMachine, gpu: int) -> tuple[bool, list[tuple[int, int]]]:
    """Whether MIG mode is on, and where the instances lie; each has a compute instance."""
    state = machine.state.gpus[machine.pci(gpu)].mig
    assert all(instance.compute_instances for instance in state.instances)
    places = [(one.placement.start, one.placement.size) for one in state.instances]
    return state.enabled, sorted(places)


def test_a_gpu_is_cut_into_what_was_named_and_then_into_something_else(machine: FakeMachine) -> None:
    result = cut("2", "3g.40gb", "1g.10gb", "1g.10gb")
    assert result.output == "GPU 2 of node-0 has 3g.40gb, 1g.10gb, 1g.10gb\n"
    assert partitions(machine, 2) == (True, [(0, 4), (4, 1), (5, 1)])

    cut("2", "2g.20gb")
    assert partitions(machine, 2) == (True, [(0, 2)])

    assert cut("2").output == "GPU 2 of node-0 has no partitions\n"
    assert partitions(machine, 2) == (False, [])


@pytest.mark.usefixtures("machine")
def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(NodeIncomplete, match=r"no room is left for 3g\.40gb"):
        cut("0", "3g.40gb", "3g.40gb", "3g.40gb")


@pytest.mark.usefixtures("machine")
def test_a_profile_that_the_gpu_has_not_is_a_wrong_command_line() -> None:
    result = cut("0", "1g.5gb")

    assert result.exit_code == 2
    assert "1g.5gb is no profile of this GPU: 1g.10gb" in result.output
