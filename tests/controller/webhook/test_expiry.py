"""A certificate that is about to expire is told in good time, in the log and as a number."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from controller.webhook.certificate import ExpiryWatch, ServingCertificate
from driver.process.log import configure
from tests.controller.webhook.peer import Pair, make_pair

DAY = 86400.0


class Scene:
    """A certificate of a hundred days, a clock, and what was logged."""

    def __init__(self, folder: Path) -> None:
        self.pair: Pair = make_pair(folder, "-nodes", "-days", "100")
        certificate = ServingCertificate(self.pair.cert_file, self.pair.key_file)
        self.expires = certificate.expires_at()
        self.now = self.expires - 100 * DAY
        self.watch = ExpiryWatch(certificate, clock=lambda: self.now)
        self._log = io.StringIO()
        configure("info", self._log)

    def check(self, days: float) -> list[dict[str, Any]]:
        """What is logged by a look so many days before the expiry of the first certificate."""
        self.now = self.expires - days * DAY
        self._log.seek(0)
        self._log.truncate()
        self.watch.check()
        return [json.loads(line) for line in self._log.getvalue().splitlines()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "tls")


def test_a_warning_comes_within_thirty_days_and_says_until_when_and_what_to_do(scene: Scene) -> None:
    assert [scene.check(days) for days in (100, 60, 30)] == [[], [], []]
    [said] = scene.check(29.5)

    assert (said["level"], said["event"], said["days"]) == ("warning", "certificate expires soon", 29)
    assert said["expires"].endswith("+00:00")
    assert "gpu-dra-webhook-tls" in said["way_out"]


def test_the_warning_is_repeated_once_a_day(scene: Scene) -> None:
    said = [scene.check(20 - hours / 24) for hours in range(49)]

    assert [hour for hour, lines in enumerate(said) if lines] == [0, 24, 48]


def test_an_expired_certificate_is_an_error_at_once_and_then_once_a_day(scene: Scene) -> None:
    assert scene.check(0.01)[0]["level"] == "warning"
    [said] = scene.check(0)

    assert (said["level"], said["event"]) == (
        "error",
        "certificate has expired: objects are stored without a review",
    )
    assert scene.check(-0.5) == []
    assert scene.check(-1)[0]["level"] == "error"


def test_a_replaced_certificate_ends_the_warnings(scene: Scene, tmp_path: Path) -> None:
    scene.check(10)
    renewed = make_pair(tmp_path / "renewed", "-nodes", "-days", "300")
    renewed.cert_file.replace(scene.pair.cert_file)
    renewed.key_file.replace(scene.pair.key_file)

    assert [line["event"] for line in scene.check(9)] == ["certificate reloaded"]
    assert scene.check(0) == []
