"""Reads from X.509 certificates until when they are valid, which Python's ssl tells of others' only.

Of a certificate (RFC 5280, in DER) it walks to the field ``validity`` and looks at nothing else; whether the
rest is right is for OpenSSL, which has loaded the same file.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_FIELDS_BEFORE_VALIDITY = 3
"""Serial number, signature algorithm and issuer."""


def expires_at(pem: str) -> float:
    """When the first of these certificates expires, in seconds since 1970: a chain is as good as its weakest.

    Raises ValueError when there is none, or when one is none.
    """
    chain = _CERTIFICATE.findall(pem)
    if not chain:
        raise ValueError("there is no certificate in it")
    return min(_not_after(ssl.PEM_cert_to_DER_cert(one)) for one in chain)


def _not_after(der: bytes) -> float:
    certificate, _ = _value(der, _SEQUENCE)
    fields, _ = _value(certificate, _SEQUENCE)
    if fields[:1] == bytes([_VERSION]):
        _, fields = _value(fields, _VERSION)
    for _ in range(_FIELDS_BEFORE_VALIDITY):
        _, fields = _value(fields, fields[0] if fields else _SEQUENCE)
    validity, _ = _value(fields, _SEQUENCE)
    _, after = _value(validity, validity[0] if validity else _UTC_TIME)
    kind = after[0] if after else _UTC_TIME
    text = _value(after, kind)[0].decode("ascii")
    if kind == _UTC_TIME:  # two digits: 50 to 99 are of the last century
        text = ("19" if text[:2] >= "50" else "20") + text
    elif kind != _GENERALIZED_TIME:
        raise ValueError("a certificate has no time of expiry")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _value(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the element that ``der`` begins with, which has this tag, and what follows it."""
    if len(der) < 2 or der[0] != tag:
        raise ValueError("a certificate is not in DER")
    length, start = der[1], 2
    if length & 0x80:
        start = 2 + (length & 0x7F)
        length = int.from_bytes(der[2:start], "big")
    if len(der) < start + length:
        raise ValueError("a certificate is cut off")
    return der[start : start + length], der[start + length :]
