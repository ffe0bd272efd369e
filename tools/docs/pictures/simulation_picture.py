"""The documentation's picture of a simulated day, as ``gpuctl simulate --trace DAY.csv -o svg`` draws it."""

from __future__ import annotations

import random

from gpuctl.node.planned import plan_node
from gpuctl.simulate.cluster import load_classes, planned_cluster
from gpuctl.simulate.course_svg import course_svg
from gpuctl.simulate.simulation import Simulation
from gpuctl.simulate.timeline import Timeline
from gpuctl.simulate.trace import Arrival
from gpuctl.simulate.workload import PodGroup
from tools.docs.pictures.node_pictures import ALL_TIERS, MACHINE

_NODES, _DAY_SECONDS = 4, 86_400
# Name, class, devices of it, pods a day, hours that they run.
_PODS = (
    ("train", "large", 4, 20, 4.0),
    ("tune", "mig-large", 1, 90, 1.5),
    ("notebook", "mig-small", 1, 200, 2.0),
    ("serve", "shared-mps", 1, 120, 1.0),
)


def day() -> str:
    """Notebooks, services and training on four nodes: most pods come in the middle of the day."""
    groups, trace = [], []
    chance = random.Random(7)  # noqa: S311 - no secret
    for index, (name, device_class, count, pods, hours) in enumerate(_PODS):
        request = {"name": "gpu", "exactly": {"deviceClassName": device_class, "count": count}}
        groups.append(PodGroup(name, 0, ({"devices": {"requests": [request]}},)))
        for _ in range(pods):
            arrival = chance.betavariate(2.5, 2.5) * _DAY_SECONDS
            trace.append(Arrival(arrival, index, 1, 3600 * hours * chance.lognormvariate(0, 0.5)))
    trace.sort(key=lambda one: one.seconds)
    published = plan_node(MACHINE, "node", ALL_TIERS).slices
    cluster = planned_cluster([(_NODES, published)], load_classes(()))
    timeline = Timeline(cluster)
    Simulation(cluster, groups, 1, _DAY_SECONDS, trace, timeline).run(lambda _: None)
    return course_svg(timeline.course(_DAY_SECONDS))
