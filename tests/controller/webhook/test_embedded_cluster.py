"""The webhook as the chart configures it takes part in writes to the embedded cluster."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from envtest.embedded.api.requests import parse_request
from envtest.embedded.server import EmbeddedApiServer, Refused
from tests.controller.webhook.peer import SECONDS, Pair, served
from tests.controller.webhook.reviewed import claim, config, parameters, request

Object = dict[str, Any]
MANIFEST = Path(__file__).parents[3] / "deploy" / "webhook.yaml"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
WRONG = claim(config(parameters(sharing={"strategy": "Fair"})))
OF_ANOTHER_KIND = claim(config(parameters(), "gpu"), requests=[request("gpu", "mig-small")])
WARNED = claim(
    config(parameters(sharing={"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 0}}))
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedApiServer]:
    """A server that finds the Service of the manifest at the webhook of this process."""
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    pair = Pair(folder / "tls.crt", folder / "tls.key")
    issued = authority.issue_cert("gpu-dra-webhook.gpu-dra.svc")
    issued.private_key_pem.write_to_path(pair.key_file)
    pair.cert_file.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
    with served(pair, SECONDS, "127.0.0.1:0", "mig-small") as peer:
        known = {("gpu-dra", "gpu-dra-webhook", 443): ("127.0.0.1", peer.port)}
        running = EmbeddedApiServer(resolve_service=lambda *service: known.get(service))
        objects = yaml.safe_load_all(MANIFEST.read_text())
        registered = next(one for one in objects if one["kind"] == "ValidatingWebhookConfiguration")
        (hook,) = registered["webhooks"]
        hook["clientConfig"]["caBundle"] = base64.b64encode(authority.cert_pem.bytes()).decode()
        running.create(CONFIGURATIONS, registered)
        yield running


@pytest.mark.parametrize("wrong", [WRONG, OF_ANOTHER_KIND], ids=["value", "kind"])
def test_a_wrong_claim_is_denied(server: EmbeddedApiServer, wrong: Object) -> None:
    with pytest.raises(Refused, match=r'"webhook\.gpu\.nvidia\.com" denied the request: spec'):
        server.create(CLAIMS, copy.deepcopy(wrong))


def test_a_claim_that_will_do_little_is_warned_of(server: EmbeddedApiServer) -> None:
    request, warnings = parse_request("POST", f"{CLAIMS}?dryRun=All"), list[str]()
    assert request is not None

    server.verbs.create(request, copy.deepcopy(WARNED), warnings)

    assert len(warnings) == 1
    assert "defaultActiveThreadPercentage" in warnings[0]
