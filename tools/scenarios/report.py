"""Says how scenarios came out: a line for each, and what was expected and came instead below a failed one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from envtest.client.shipped import PACKAGE_ROOT
from tools.scenarios.groups import Result

_STYLES = {"- ": "red", "+ ": "green"}
_MOST_LINES = 60


class Report:
    """Writes to a console as results come in; remembers whether one failed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._results: list[Result] = []

    @property
    def failed(self) -> int:
        """How many failed."""
        return sum(result.failure is not None for result in self._results)

    def tell(self, result: Result) -> None:
        """Say how one came out."""
        self._results.append(result)
        word, style = ("ok", "green") if result.failure is None else ("FAILED", "bold red")
        line = Text.assemble((f"{word:<7}", style), f"{result.name:<34} {result.seconds:6.1f} s")
        if result.start_seconds > 1:
            line.append(f"  after {result.start_seconds:.1f} s for its cluster", "dim")
        self._print(line)
        if result.failure is not None:
            failure = result.failure
            file = Path(result.file)
            shown = file.relative_to(PACKAGE_ROOT) if file.is_relative_to(PACKAGE_ROOT) else file
            self._print(Text(f"  {shown}:{failure.line}: {failure.reason}", "bold"))
            for command in failure.command.splitlines():
                self._print(Text(f"    $ {command}", "cyan"))
            self._tell_lines(failure.told.splitlines())

    def skip(self, name: str, kind: str, why: str) -> None:
        """Say that one is not for this kind of cluster."""
        self._print(Text.assemble(("-      ", "dim"), f"{name:<34} not on {kind}: {why}"))

    def end(self, seconds: float) -> None:
        """Say how many there were."""
        ran = len(self._results)
        self._print(Text(f"{ran - self.failed} of {ran} scenarios ran as written, in {seconds:.0f} s"))

    def _tell_lines(self, lines: Sequence[str]) -> None:
        for line in lines[:_MOST_LINES]:
            self._print(Text(f"    {line}", _STYLES.get(line[:2], "")))
        if len(lines) > _MOST_LINES:
            self._print(Text(f"    and {len(lines) - _MOST_LINES} more lines", "dim"))

    def _print(self, line: Text) -> None:
        # One call a line, so that those of clusters that run side by side do not mix.
        self._console.print(line, soft_wrap=True, highlight=False)
