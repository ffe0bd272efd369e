"""Deadlines without time: a call that is told to hang is overdue at once, and its lane until it is let go."""

from collections.abc import Callable
from typing import TypeVar

from driver.nvml.api import GPU_CALLS
from driver.nvml.deadline import DEADLINE_SECONDS, Pending
from tests.gpus import NODE_CALLS, Guard, NvmlTimeout, Watch

T = TypeVar("T")

C_FUNCTIONS = NODE_CALLS | GPU_CALLS


class _Overdue(BaseException):
    """Ends a job whose call hangs; as with the real guard, no ``except`` of the job sees it."""

    def __init__(self, timeout: NvmlTimeout) -> None:
        super().__init__()
        self.timeout = timeout


class TimelessGuard(Guard):
    """Does jobs at once in the caller's thread. ``calls`` are all calls that were made, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self._hanging: tuple[str, frozenset[str]] | None = None
        self._stuck: dict[str, NvmlTimeout] = {}

    def hang(self, call: str, *lanes: str) -> None:
        """Let a call hang in these lanes, until ``let_go``."""
        self._hanging = call, frozenset(lanes)

    def let_go(self) -> None:
        """Let all calls return."""
        self._hanging = None
        self._stuck.clear()

    def start(self, key: str, job: Callable[[Watch], T]) -> Pending[T]:
        """Do the job now."""
        if key in self._stuck:
            raise self._stuck[key]
        try:
            result = job(_Calls(self, key))
        except _Overdue as overdue:
            return _Done(error=overdue.timeout)
        except Exception as error:  # noqa: BLE001 - handed over to whoever asks for the result
            return _Done(error=error)
        return _Done(result)

    def made(self, key: str, name: str) -> None:
        """Count a call, and let it hang where it shall."""
        self.calls.append(name)
        if self._hanging is not None and self._hanging[0] == name and key in self._hanging[1]:
            self._stuck[key] = NvmlTimeout(C_FUNCTIONS[name], key, DEADLINE_SECONDS)
            raise _Overdue(self._stuck[key])


class _Calls(Watch):
    """Makes calls at once."""

    __slots__ = ("_guard", "_key")

    def __init__(self, guard: TimelessGuard, key: str) -> None:
        self._guard = guard
        self._key = key

    def __call__(self, name: str, call: Callable[[], T], *, patient: bool = False) -> T:  # noqa: ARG002 - no time passes
        self._guard.made(self._key, name)
        return call()


class _Done(Pending[T]):
    """A job that has ended."""

    def __init__(self, result: T | None = None, error: Exception | None = None) -> None:
        self._value = result
        self._failure = error

    def result(self) -> T:
        if self._failure is not None:
            raise self._failure
        return self._value  # type: ignore[return-value]  # what the job returned
