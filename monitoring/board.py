"""A dashboard as data: rows of panels, each with its queries and a sentence that says what it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shape = Literal["lines", "areas", "number", "table"]

CLUSTER = 'cluster=~"$cluster"'
PLACES = {
    "<cluster>": CLUSTER,
    "<node>": f'{CLUSTER}, node=~"$node"',
    "<tenant>": f'{CLUSTER}, claim_namespace=~"$namespace"',
}
"""What stands for the chosen clusters, nodes and namespaces in a query."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query of Prometheus, and how Grafana names its series."""

    text: str
    legend: str = ""

    @property
    def expression(self) -> str:
        """What Prometheus is asked, with Grafana's variables in it."""
        found = self.text
        for place, labels in PLACES.items():
            found = found.replace(place, labels)
        return found


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; ``unit`` is Grafana's name of it, ``width`` of 24, ``hidden`` columns of a table.

    ``needs`` names exporters beside the driver.
    """

    title: str
    meaning: str
    shape: Shape
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 12
    most: float | None = None
    hidden: tuple[str, ...] = ()
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """Something to choose from: the values of a label of a series."""

    name: str
    title: str
    series: str
    label: str

    @property
    def query(self) -> str:
        """What Grafana asks for the values."""
        return f"label_values({Query(self.series).expression}, {self.label})"


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard; ``prices`` has it ask for the price of a GPU hour."""

    uid: str
    title: str
    meaning: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    prices: bool = False


CLUSTERS = Variable("cluster", "Cluster", "gpu_dra_operations_in_flight", "cluster")
NODES = Variable("node", "Node", "gpu_dra_operations_in_flight{<cluster>}", "node")
NAMESPACES = Variable("namespace", "Namespace", "gpu_dra_device_info{<cluster>}", "claim_namespace")
