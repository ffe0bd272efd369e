"""Follows the file with the rules of this node, and keeps the last good ones while the file is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from controller.observe.node_events import NodeEvents
from driver.errors import ConfigError
from driver.event_reasons import EventReason
from driver.policy.config import Pool, load_file
from driver.policy.rules import NodeConfig
from driver.process.log import get_logger

_log = get_logger(__name__)

_Stamp = tuple[int, int, int, int]


class RulesFile:
    """The rules in one file, which may be replaced at any time, as the files of a ConfigMap volume are.

    ``labels`` gives the node's labels and is called if the file has pools. Raises ConfigError if the file has
    a mistake that concerns every node.
    """

    def __init__(
        self,
        path: Path,
        events: NodeEvents,
        labels: Callable[[], Mapping[str, str]],
    ) -> None:
        self._path = path
        self._events = events
        self._labels = labels
        # Before the file is read, so that a change in between is noticed the next time.
        self._last_stamp = self._stamp()
        self._file = load_file(path)
        self._pool: Pool | None = None
        self._reported: dict[str, str] = {}

    def current(self) -> NodeConfig:
        """The rules of this node, or the last good ones if the file has mistakes now.

        Mistakes are logged and posted as an event of the Node, once; those that concern only other nodes are
        only logged. Raises ConfigError if the rules were never good, and whatever ``labels`` raises.
        """
        self._reload_if_changed()
        labels = self._labels() if self._file.has_pools else {}
        self._log_elsewhere("; ".join(self._file.wrong_elsewhere(labels)))
        try:
            pool = self._file.pool_of(labels)
        except ConfigError as error:
            self._report("entry", error)
            if self._pool is None:
                raise
            return self._pool.rules
        self._reported["entry"] = ""
        if pool is not self._pool:
            name = {"pool": pool.name} if pool.name else {}
            _log.info("node configuration loaded", file=str(self._path), rules=len(pool.rules.rules), **name)
            self._pool = pool
        return pool.rules

    def _reload_if_changed(self) -> None:
        seen = self._stamp()
        if seen == self._last_stamp:
            return
        # Set before the file is read, so that a change in between is noticed the next time.
        self._last_stamp = seen
        try:
            self._file = load_file(self._path)
        except ConfigError as error:
            self._report("file", error)
        else:
            self._reported["file"] = ""

    def _stamp(self) -> _Stamp | None:
        """A value that changes when the file is replaced or written; None if there is no file."""
        try:
            # The file of a ConfigMap volume is reached through a symbolic link, which the kubelet replaces.
            # stat() follows links, so the inode is another one then.
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _report(self, about: str, error: ConfigError) -> None:
        if str(error) == self._reported.get(about):
            return
        self._reported[about] = str(error)
        then = (
            "nothing is offered until it is correct"
            if self._pool is None
            else "the former rules stay in effect"
        )
        _log.error(f"node configuration not loaded, {then}", error=str(error))
        self._events.post(EventReason.NODE_CONFIGURATION_WRONG, f"{error.what}: {then}; {error.way_out}")

    def _log_elsewhere(self, wrong: str) -> None:
        if wrong and wrong != self._reported.get("elsewhere"):
            _log.warning("node configuration has mistakes that concern other nodes", error=wrong)
        self._reported["elsewhere"] = wrong
