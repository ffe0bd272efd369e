"""Series that are made anew at each look, so that none outlives what it tells of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from driver.errors import DriverError
from driver.process.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from driver.process.metrics.reading import Reading
    from driver.process.metrics.series import Series

_log = get_logger("metrics")

_Family = GaugeMetricFamily | CounterMetricFamily


class Shown(Collector):
    """Asks for the values of some series whenever the numbers are fetched.

    A DriverError leaves all of these series out, and no others.
    """

    def __init__(self, series: Sequence[Series], read: Callable[[], Iterable[Reading]]) -> None:
        self._series = tuple(series)
        self._read = read

    def describe(self) -> list[_Family]:
        """The series without values."""
        return [_family(one) for one in self._series]

    def collect(self) -> list[_Family]:
        """The series with their values now; raises ValueError for one with other labels than its own."""
        families = {one.name: (one.labels, _family(one)) for one in self._series}
        try:
            for reading in self._read():
                labels, family = families[reading.series]
                if len(reading.labels) != len(labels):
                    raise ValueError(f"{reading.series} has the labels {labels}, not {tuple(reading.labels)}")
                family.add_metric([reading.labels[name] for name in labels], reading.value)
        except DriverError as error:
            names = ", ".join(families)
            _log.warning("series left out of the metrics", series=names, error=str(error))
            return []
        return [family for _, family in families.values()]


def _family(series: Series) -> _Family:
    if series.kind == "counter":
        return CounterMetricFamily(series.name, series.help, labels=series.labels)
    return GaugeMetricFamily(series.name, series.help, labels=series.labels)
