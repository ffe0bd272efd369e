"""Keeps the node configuration as its file is now, and the last good one where the file is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.errors import ConfigError
from driver.kinds.registry import KINDS
from driver.policy.config import load_config
from driver.process.log import get_logger

if TYPE_CHECKING:
    from pathlib import Path

    from controller.observe.node_events import NodeEvents
    from driver.kinds.kind import Kinds
    from driver.policy.rules import NodeConfig

_log = get_logger(__name__)

_State = tuple[int, int, int, int]


class RulesFile:
    """The rules in one file, which may be replaced at any time, as the files of a ConfigMap volume are.

    The file has to be good at first: raises ConfigError when it cannot be read or is wrong.
    """

    def __init__(self, path: Path, events: NodeEvents, kinds: Kinds = KINDS) -> None:
        self._path = path
        self._events = events
        self._kinds = kinds
        self._seen = self._look()
        self._rules = load_config(path, kinds)
        self._told = ""

    def current(self) -> NodeConfig:
        """The rules of the file if it is good, else those of the last time that it was.

        What is wrong with it is logged and posted as an event of the node, once.
        """
        seen = self._look()
        if seen == self._seen:
            return self._rules
        # Taken before the file is read: a change in between is another look's.
        self._seen = seen
        try:
            self._rules = load_config(self._path, self._kinds)
        except ConfigError as error:
            self._tell_wrong(error)
        else:
            self._told = ""
            _log.info("node configuration loaded", file=str(self._path), rules=len(self._rules.rules))
        return self._rules

    def _look(self) -> _State | None:
        """What differs when the file was replaced or written, None when it is not there."""
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _tell_wrong(self, error: ConfigError) -> None:
        if str(error) == self._told:
            return
        self._told = str(error)
        _log.error("node configuration not loaded, the rules before it stay", error=str(error))
        self._events.post(
            "Warning", "NodeConfigurationWrong", f"{error.what}: the rules before it stay; {error.way_out}"
        )
