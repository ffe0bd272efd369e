"""What can go wrong around a real cluster; every message names the thing and the way out.

ClusterError
├── MissingPrerequisite   this machine lacks a right, a program or a binary
├── BuildFailed           Go could not build the binaries
├── NotReady              a component ended or did not come up in time
├── WaitTimeout           an object did not reach the state that was waited for
├── CommandFailed         a command inside a container ended with an error
└── ApiRefused            the API server answered with an error; ``status`` is the HTTP status
    └── ApiUnreachable    the API server did not answer
"""

from __future__ import annotations


class ClusterError(Exception):
    """Something around a real cluster failed."""


class MissingPrerequisite(ClusterError):
    """This machine lacks a right, a program or a binary that a cluster needs."""


class BuildFailed(ClusterError):
    """Go could not build the binaries."""


class NotReady(ClusterError):
    """A component ended, or did not come up in time."""


class WaitTimeout(ClusterError):
    """An object did not reach the state that was waited for."""


class CommandFailed(ClusterError):
    """A command inside a container ended with an error.

    ``returncode`` is its exit status, ``stdout`` and ``stderr`` are what it wrote.
    """

    def __init__(self, what: str, returncode: int, stdout: str, stderr: str) -> None:
        super().__init__(f"{what} ended with status {returncode}: {stderr.strip() or stdout.strip()}")
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


class ApiRefused(ClusterError):
    """The API server answered with an error.

    ``status`` is the HTTP status (404, 409, ...; 0 without an answer), ``reason`` the reason of
    the Status object, such as NotFound, Conflict or Invalid.
    """

    def __init__(self, what: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{what}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason


class ApiUnreachable(ApiRefused):
    """The API server did not answer: it is stopped, starting, or gone."""
