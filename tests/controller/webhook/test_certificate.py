"""A certificate that is about to expire is told in good time, in the log and as a number."""

import base64
import io
import json
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.webhook.certificate import ExpiryWatch, expires_at
from driver.process.log import configure
from driver.process.metrics import CertificateMetrics
from tests.clusters import Object, ServingCertificate
from tests.controller.webhook.peer import Pair, make_pair
from tests.openssl import openssl

DAY = 86400.0


def valid_for(folder: Path, days: int) -> Pair:
    return make_pair(folder, "-nodes", "-days", str(days))


class Scene:
    """A certificate of a hundred days, a clock, and what was logged."""

    def __init__(self, folder: Path) -> None:
        self.pair = valid_for(folder, 100)
        certificate = ServingCertificate(self.pair.cert_file, self.pair.key_file)
        self.expires = certificate.expires_at()
        self.now = self.expires - 100 * DAY
        self.watch = ExpiryWatch(certificate, clock=lambda: self.now)
        self._log = io.StringIO()
        configure("info", self._log)

    def check(self, days: float) -> list[Object]:
        """What is logged by a look so many days before the expiry of the first certificate."""
        self.now = self.expires - days * DAY
        self._log.seek(0)
        self._log.truncate()
        self.watch.check()
        return [json.loads(line) for line in self._log.getvalue().splitlines()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "tls")


def test_a_warning_comes_within_thirty_days_once_a_day_and_an_error_after_the_end(scene: Scene) -> None:
    assert [scene.check(days) for days in (100, 60, 30)] == [[], [], []]
    [said] = scene.check(29.5)

    assert (said["level"], said["event"], said["days"]) == ("warning", "certificate expires soon", 29)
    assert said["expires"].endswith("+00:00")
    assert "gpu-dra-webhook-tls" in said["way_out"]
    told = [scene.check(20 - hours / 24) for hours in range(49)]
    assert [hour for hour, lines in enumerate(told) if lines] == [0, 24, 48]

    assert scene.check(0.01)[0]["level"] == "warning"
    [said] = scene.check(0)
    expired = "certificate has expired: objects are stored without a review"
    assert (said["level"], said["event"]) == ("error", expired)
    assert scene.check(-0.5) == []
    assert scene.check(-1)[0]["level"] == "error"


def test_a_replaced_certificate_ends_the_warnings(scene: Scene, tmp_path: Path) -> None:
    scene.check(10)
    renewed = valid_for(tmp_path / "renewed", 300)
    renewed.cert_file.replace(scene.pair.cert_file)
    renewed.key_file.replace(scene.pair.key_file)

    registry = CertificateMetrics(scene.watch.remaining_seconds).registry
    assert [line["event"] for line in scene.check(9)] == ["certificate reloaded"]
    assert (registry.get_sample_value("gpu_dra_webhook_certificate_remaining_seconds") or 0) > 190 * DAY
    assert scene.check(0) == []


def by_openssl(pair: Pair) -> float:
    said = openssl("x509", "-noout", "-enddate", "-in", str(pair.cert_file))
    return float(ssl.cert_time_to_seconds(said.strip().removeprefix("notAfter=")))


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_pair(tmp_path_factory.mktemp("pair")).cert_file.read_text()


@pytest.mark.parametrize("days", [1, 365, 20_000], ids=["a day", "a year", "beyond 2050, in another form"])
def test_it_is_what_openssl_says(tmp_path: Path, days: int) -> None:
    pair = valid_for(tmp_path, days)

    assert expires_at(pair.cert_file.read_text()) == by_openssl(pair)


def test_a_certificate_of_version_1_has_a_field_less(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    request, old = tmp_path / "request", Pair(tmp_path / "old.crt", pair.key_file)
    key = str(pair.key_file)
    openssl("req", "-new", "-key", key, "-subj", "/CN=x", "-out", str(request))
    openssl("x509", "-req", "-in", str(request), "-key", key, "-days", "3", "-out", str(old.cert_file))
    assert expires_at(old.cert_file.read_text()) == by_openssl(old)


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
