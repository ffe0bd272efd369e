"""Keeps the rules of this node as their file is now, and the last good ones where the file is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from controller.observe.node_events import NodeEvents
from driver.errors import ConfigError
from driver.event_reasons import EventReason
from driver.kinds.kind import Kinds
from driver.kinds.registry import KINDS
from driver.policy.config import Pool, load_file
from driver.policy.rules import NodeConfig
from driver.process.log import get_logger

_log = get_logger(__name__)

_State = tuple[int, int, int, int]


class RulesFile:
    """The rules in one file, which may be replaced at any time, as the files of a ConfigMap volume are.

    ``labels`` gives those of the node, by which its pool is chosen; it is asked while the file has pools.
    What concerns every node has to be good at first: raises ConfigError when it is not.
    """

    def __init__(
        self,
        path: Path,
        events: NodeEvents,
        labels: Callable[[], Mapping[str, str]],
        kinds: Kinds = KINDS,
    ) -> None:
        self._path = path
        self._events = events
        self._labels = labels
        self._kinds = kinds
        self._seen = self._look()
        self._file = load_file(path, kinds)
        self._pool: Pool | None = None
        self._told: dict[str, str] = {}

    def current(self) -> NodeConfig:
        """The rules of this node if they are good, else those of the last time that they were.

        What is wrong is logged and posted as an event of the node, once; what is wrong for other nodes alone
        is logged. Raises ConfigError while they never were good, and what ``labels`` raises.
        """
        self._look_again()
        labels = self._labels() if self._file.has_pools else {}
        self._tell_elsewhere("; ".join(self._file.wrong_elsewhere(labels)))
        try:
            pool = self._file.pool_of(labels)
        except ConfigError as error:
            self._tell("entry", error)
            if self._pool is None:
                raise
            return self._pool.rules
        self._told["entry"] = ""
        if pool is not self._pool:
            told = {"pool": pool.name} if pool.name else {}
            _log.info("node configuration loaded", file=str(self._path), rules=len(pool.rules.rules), **told)
            self._pool = pool
        return pool.rules

    def _look_again(self) -> None:
        seen = self._look()
        if seen == self._seen:
            return
        # Taken before the file is read: a change in between is another look's.
        self._seen = seen
        try:
            self._file = load_file(self._path, self._kinds)
        except ConfigError as error:
            self._tell("file", error)
        else:
            self._told["file"] = ""

    def _look(self) -> _State | None:
        """What differs when the file was replaced or written, None when it is not there."""
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _tell(self, about: str, error: ConfigError) -> None:
        if str(error) == self._told.get(about):
            return
        self._told[about] = str(error)
        then = "nothing is offered before it is right" if self._pool is None else "the rules before it stay"
        _log.error(f"node configuration not loaded, {then}", error=str(error))
        self._events.post(EventReason.NODE_CONFIGURATION_WRONG, f"{error.what}: {then}; {error.way_out}")

    def _tell_elsewhere(self, wrong: str) -> None:
        if wrong and wrong != self._told.get("elsewhere"):
            _log.warning("node configuration is wrong for other nodes", error=wrong)
        self._told["elsewhere"] = wrong
