"""A certificate for a server on loopback, made by openssl, since Python's own library makes none.

Clients of Kubernetes in Go show no token to a server without HTTPS, so kubectl needs it for rights.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from envtest.client.errors import ClusterError
from envtest.embedded.api.served import ServerTls

_REQUEST = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_FOR = ("-days", "3650", "-subj", "/CN=kube-apiserver")
_NAMES = "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost"
"""The addresses and names at which clients check the certificate."""


def self_signed(folder: Path) -> ServerTls:
    """A new certificate, which clients trust as it is, and its key, in a folder.

    Raises ClusterError where openssl is missing or fails.
    """
    folder.mkdir(mode=0o700)
    certificate, key = folder / "apiserver.crt", folder / "apiserver.key"
    files = ("-keyout", str(key), "-out", str(certificate))
    try:
        done = subprocess.run(
            ["openssl", *_REQUEST, *files, *_FOR, "-addext", _NAMES],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterError(
            "a server with HTTPS needs openssl, which makes its certificate: install it"
        ) from error
    if done.returncode != 0:
        raise ClusterError(f"openssl cannot make a certificate: {done.stderr.strip()}")
    return ServerTls(certificate.read_text(), certificate, key)
