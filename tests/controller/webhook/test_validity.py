"""Until when a certificate is valid is read as OpenSSL reads it, and nonsense is refused as such."""

from __future__ import annotations

import base64
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.webhook.certificate import expires_at
from tests.controller.webhook.peer import Pair, make_pair
from tests.openssl import openssl


def by_openssl(pair: Pair) -> float:
    said = openssl("x509", "-noout", "-enddate", "-in", str(pair.cert_file))
    return float(ssl.cert_time_to_seconds(said.strip().removeprefix("notAfter=")))


def valid_for(folder: Path, days: int) -> Pair:
    return make_pair(folder, "-nodes", "-days", str(days))


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_pair(tmp_path_factory.mktemp("pair")).cert_file.read_text()


@pytest.mark.parametrize("days", [1, 365, 20_000], ids=["a day", "a year", "beyond 2050, in another form"])
def test_it_is_what_openssl_says(tmp_path: Path, days: int) -> None:
    pair = valid_for(tmp_path, days)

    assert expires_at(pair.cert_file.read_text()) == by_openssl(pair)


def test_a_chain_is_as_good_as_its_weakest_certificate(tmp_path: Path) -> None:
    long, short = valid_for(tmp_path / "long", 300), valid_for(tmp_path / "short", 30)
    chain = "a comment\n" + "".join(pair.cert_file.read_text() for pair in (long, short))

    assert expires_at(chain) == by_openssl(short)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"certificate|base64|characters"):
        expires_at(text)


@given(st.data())
def test_a_damaged_certificate_is_read_or_refused(pem: str, data: st.DataObject) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(pem))
    position = data.draw(st.integers(0, len(der) - 1))
    der[position] = data.draw(st.integers(0, 255))
    cut = der[: data.draw(st.integers(0, len(der)))]
    body = base64.b64encode(cut).decode()

    with suppress(ValueError):
        expires_at(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
