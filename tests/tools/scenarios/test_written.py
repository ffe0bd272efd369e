"""Every scenario is written as the others are, and shows the files that it has."""

import pytest

from tools.scenarios.catalogue import scenario, scenario_names
from tools.scenarios.written import faults


@pytest.mark.parametrize("name", scenario_names())
def test_every_scenario_is_written_as_it_should(name: str) -> None:
    assert faults(scenario(name)) == []
