"""The value ``nodeConfig``: the node configuration, whose rules have the fields of the driver's kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from driver.health.health_rules import SCHEMA as HEALTH_SCHEMA
from driver.policy.config_schema import pool_schema, rule_schema
from tools.chart.described import Object, Schema


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """In which forms GPUs are offered; it becomes a ConfigMap, and a change is seen without a restart."""

    version: Annotated[Literal["v1"], "The version of its format, as in a file."] = "v1"
    rules: Annotated[
        list[Annotated[Object, Schema(rule_schema())]],
        "Rules of the nodes that no pool takes in. Without any, every GPU is offered whole, or as "
        "the partitions "
        "that an admin made.",
    ] = field(default_factory=list)
    pools: Annotated[
        list[Annotated[Object, Schema(pool_schema())]],
        "Rules of pools of nodes: each with name, nodeSelector (matchLabels, matchExpressions) and "
        "rules. The first "
        "whose selector a node's labels meet decides.",
    ] = field(default_factory=list)
    health: Annotated[
        Object,
        Schema(HEALTH_SCHEMA),
        "How faults of GPUs are judged, on all nodes: xids (code to class), and evict, the faults for which "
        "pods are evicted. Without it none is.",
    ] = field(default_factory=dict)
