"""The processes show the series of the table, each with its labels, and no others."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from driver.process.metrics.table import TABLE, Process
from tests.clusters import DriverNode, fresh_namespace
from tests.eventually import eventually
from tests.flow.claims import wait_published
from tests.flow.memory_scene import HOLDS, RULES, TIMES, memory_pod, memory_template, start_held
from tests.flow.metrics import metrics_text, serve_metrics
from tests.flow.several_machines import installed_on

TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? \S+$", re.MULTILINE)
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
PARTS = ("_bucket", "_count", "_sum")


@dataclass(frozen=True, slots=True)
class Scraped:
    """A node and the addresses of its processes' numbers."""

    driver: DriverNode
    addresses: dict[Process, str]

    def text(self, process: Process) -> str:
        """What Prometheus gets."""
        return metrics_text(self.addresses[process])

    def samples(self, process: Process) -> list[tuple[str, dict[str, str]]]:
        """The names and labels of all values, but for when a series began."""
        found = (
            (match[1], dict(LABEL.findall(match[2] or ""))) for match in SAMPLE.finditer(self.text(process))
        )
        return [(name, labels) for name, labels in found if not name.endswith("_created")]


@pytest.fixture(scope="module")
def scraped(request: pytest.FixtureRequest) -> Iterator[Scraped]:
    """A node with a share whose memory is held and a whole GPU, both in use."""
    with installed_on(request.config, (HOLDS,), rules=RULES, pretend_cgroups=True, times=TIMES) as installed:
        cluster, (driver,) = installed[0], installed[1]
        rules = ("--config", str(driver.folder / "node-config.yaml"))
        plugin = serve_metrics(driver, "kubeletplugin")
        node = Scraped(
            driver, {"kubeletplugin": plugin, "controller": serve_metrics(driver, "controller", *rules)}
        )
        driver.wait_serving()
        wait_published(driver)
        with fresh_namespace(cluster.api) as namespace:
            memory_template(cluster, namespace, "ten", "10Gi", "shared-memory")
            start_held(cluster, namespace, memory_pod("share", "ten"))
            eventually("the share's series are there", partial(_is_shown, node))
            yield node


def _is_shown(node: Scraped) -> bool:
    """Whether all is told of the claim, and the slices are published."""
    shown = {name for name, _ in node.samples("kubeletplugin")}
    return {"gpu_dra_device_info", "gpu_dra_gpu_power_watts"} <= shown and any(
        name == "gpu_dra_devices" for name, _ in node.samples("controller")
    )


@pytest.mark.parametrize("process", ["kubeletplugin", "controller"])
def test_a_process_shows_the_series_of_the_table_and_no_others(scraped: Scraped, process: Process) -> None:
    shown = dict(TYPE.findall(scraped.text(process)))

    told = {name: kind for name, kind in shown.items() if not name.endswith("_created")}

    assert told == {row.name: row.kind for row in TABLE.of(process)}


@pytest.mark.parametrize("process", ["kubeletplugin", "controller"])
def test_every_value_has_the_labels_of_the_table(scraped: Scraped, process: Process) -> None:
    for name, labels in scraped.samples(process):
        part = next((end for end in PARTS if name.endswith(end)), "")
        row = TABLE[name.removesuffix(part)]
        bucket = {"le"} if part == "_bucket" else set()
        assert set(labels) == {*row.labels, *bucket}, name
