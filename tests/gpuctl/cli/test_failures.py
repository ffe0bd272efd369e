"""What goes wrong is told in a sentence: no number of an error, no word that only programs need."""

import ssl
import threading
from pathlib import Path

import pytest
import urllib3

from driver.kube.errors import Unauthorized
from kubernetes_rules.errors import RuleError
from tests.clusters import ClusterView, EmbeddedApiServer, Unreachable, error_text
from tests.eventually import eventually
from tests.gpus import ConfigError


def test_a_certificate_that_is_not_trusted_is_told() -> None:
    untrusted = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    untrusted.verify_message = "self-signed certificate"
    error = Unreachable("GET https://x got no answer, HTTPSConnectionPool(...)", "check that it runs")
    error.__cause__ = urllib3.exceptions.MaxRetryError(
        urllib3.HTTPSConnectionPool("x"), "/", urllib3.exceptions.SSLError(untrusted)
    )
    error.__cause__.reason.__cause__ = untrusted  # type: ignore[union-attr] # it was given one

    assert error_text(error).startswith("the API server cannot be reached: self-signed certificate;")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ConfigError("no such flag", "name another"), "no such flag; name another"),
        (RuleError("a claim is malformed"), "a claim is malformed"),
        (ConfigError("not read: [Errno 2] No such file: 'x'"), "not read: No such file: 'x'"),
        (FileNotFoundError(2, "No such file", "/x"), "/x: No such file"),
        (Unauthorized("no"), "no; check the user of the kubeconfig, or log in again"),
    ],
    ids=["way out", "rule", "number", "file", "credentials"],
)
def test_it_says_what_and_what_to_do(error: Exception, sentence: str) -> None:
    assert error_text(error) == sentence


def test_what_a_command_waits_for_is_said_while_the_api_server_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpuctl.cli.cluster._SILENT_SECONDS", 0.01)
    with EmbeddedApiServer() as server:
        view = ClusterView.connect(server.write_kubeconfig(tmp_path / "config"))
        fault = server.fail("list", "/api/v1/nodes", kind="hang")
        reading = threading.Thread(target=view.nodes)
        reading.start()
        told = eventually("it says so", lambda: capsys.readouterr().err)
        fault.release()
        reading.join()

    assert "the API server has not answered for 0.01 s; waiting up to 30 s" in told
