"""Makes Grafana's JSON of a dashboard, with Grafana's own types."""

from __future__ import annotations

import itertools
import json

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    FieldTextAlignment,
    LegendDisplayMode,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from monitoring.board import Board, Panel, Variable

TAG = "gpu-dra"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_NUMBER_HEIGHT, _HEIGHT = 4, 8

_Built = timeseries.Panel | stat.Panel | table.Panel


def text_of(board: Board) -> str:
    """The dashboard as a file that Grafana imports."""
    link = dashboard.DashboardLink("GPUs").type(DashboardLinkType.DASHBOARDS).tags([TAG])
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.meaning)
        .tags([TAG])
        .time("now-6h", "now")
        .refresh("1m")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(link.as_dropdown(True).include_vars(True).keep_time(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in board.variables:
        made = made.with_variable(_variable(variable))
    if board.prices:
        one = VariableOption(text="1", value="1", selected=True)
        made = made.with_variable(
            dashboard.TextBoxVariable("price").label("Price of a GPU hour").default_value("1").current(one)
        )
    ids = itertools.count(1)
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title).id(next(ids)))
        for panel in row.panels:
            made = made.with_panel(_panel(panel).id(next(ids)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(variable: Variable) -> dashboard.QueryVariable:
    """A variable of which several values or all can be chosen; all takes series without the label, too."""
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.title)
        .datasource(SOURCE)
        .query(variable.query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(text="All", value="$__all", selected=True))
    )


def _panel(panel: Panel) -> _Built:
    """A panel with what all panels have."""
    needs = f" Needs the metrics of {panel.needs}." if panel.needs else ""
    made = _shaped(panel).title(panel.title).description(panel.meaning + needs).datasource(SOURCE)
    made = made.unit(panel.unit).span(panel.width).min(0)
    made = made.height(_NUMBER_HEIGHT if panel.shape == "number" else _HEIGHT)
    if panel.most is not None:
        made = made.max(panel.most)
    now = panel.shape in ("number", "table")
    for place, query in enumerate(panel.queries):
        asked = prometheus.Dataquery().expr(query.expression).ref_id(_letter(place)).datasource(SOURCE)
        asked = asked.instant() if now else asked.range()
        asked = asked.format(PromQueryFormat.TABLE if panel.shape == "table" else PromQueryFormat.TIME_SERIES)
        made = made.with_target(asked.legend_format(query.legend or "__auto"))
    return made


def _shaped(panel: Panel) -> _Built:
    """An empty panel of that shape."""
    if panel.shape == "number":
        return stat.Panel().color_mode(BigValueColorMode.NONE)
    if panel.shape == "table":
        made = table.Panel().align(FieldTextAlignment.AUTO).inspect(True)
        return made.with_transformation(_merged()).with_transformation(_columns(panel))
    lines = (
        timeseries.Panel()
        .legend(common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).show_legend(True))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .show_points(VisibilityMode.NEVER)
        .line_width(1)
    )
    if panel.shape == "areas":
        return lines.fill_opacity(30).stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    return lines


def _merged() -> DataTransformerConfig:
    """Has the answers of several queries be one table."""
    return DataTransformerConfig(id_val="merge", options={})


def _columns(panel: Panel) -> DataTransformerConfig:
    """Names the columns of values, and leaves columns out that say nothing to people."""
    hidden = dict.fromkeys(("Time", "__name__", "instance", "job", *panel.hidden), True)
    several = len(panel.queries) > 1
    values = {
        f"Value #{_letter(place)}" if several else "Value": query.legend
        for place, query in enumerate(panel.queries)
        if query.legend
    }
    return DataTransformerConfig(id_val="organize", options={"excludeByName": hidden, "renameByName": values})


def _letter(place: int) -> str:
    """What Grafana calls the query at that place."""
    return chr(ord("A") + place)
