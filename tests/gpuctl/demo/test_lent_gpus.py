"""The demo's story on GPUs that it does not own: it uses the idle ones, and they are as before afterwards."""

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gpuctl.demo.lent_gpus import lent_gpus
from gpuctl.demo.story import Narrator, tell
from tests.clusters import DemoCluster
from tests.gpuctl.verify.subjects import machine_in, places_of
from tests.gpus import Placement


def test_the_story_is_told_with_idle_gpus_alone(tmp_path: Path) -> None:
    machine = machine_in(tmp_path, "hgx-h100")
    busy = machine.spec.slots[3].pci
    machine.set_processes(busy, (4711,))
    before = machine.state
    narrator = Narrator(Console(file=io.StringIO()))

    with lent_gpus(places_of(tmp_path, machine), narrator.say) as lent:
        cluster = DemoCluster("embedded", "real", lent)
        try:
            facts = tell(cluster, narrator)
        finally:
            cluster.close()

    assert len(facts.gpus) == 7
    assert facts.partitions is not None
    assert facts.hand_over.got_devices == facts.pods[0].devices
    seven = tuple(Placement(start, 1) for start in range(7))
    assert facts.partitions.made == {facts.partitions.gpu: seven}
    assert facts.shares is not None
    assert {(one.percentage, one.memory_mib) for one in facts.shares.limits} == {(25.0, 20276)}
    assert facts.left == ()
    assert replace(machine.state, driver_roots=before.driver_roots) == before
