"""Finds the address at which pods reach this machine, and so the API server of their cluster."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"
# Set aside for documentation (RFC 5737): nothing is sent there, the kernel is only asked for the way.
_SOMEWHERE = ("203.0.113.1", 9)


def machine_address() -> str:
    """The IPv4 address from which this machine would speak with others, loopback where it cannot.

    The kubelet takes it for its node's, too. From loopback, pods with a network of their own reach nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_SOMEWHERE)
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])
