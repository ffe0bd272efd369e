"""The embedded cluster answers kubectl as Kubernetes does: all commands of a list, with recorded answers."""

import pytest

from tests.clusters import EmbeddedCluster, find_assets
from tools.testbed.kubectl.comparing import differences, read
from tools.testbed.kubectl.running import ANSWERS, answers, commands


@pytest.mark.timeout(600)
def test_all_commands_are_answered_as_by_kubernetes() -> None:
    recorded = read(ANSWERS.read_text())

    with EmbeddedCluster(https=True) as cluster:
        ours = list(answers(find_assets().binary("kubectl"), cluster.admin, commands(), recorded))

    assert "\n".join(differences(recorded, ours)) == ""
