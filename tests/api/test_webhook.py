"""The API server asks the webhook about what configures our devices, as deploy/webhook.yaml has it."""

import base64
import contextlib
import copy
import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import PACKAGE_ROOT, ApiRefused, Object, Process, RealApiServer, objects_in, paths
from tests.controller.webhook.peer import make_pair
from tests.controller.webhook.reviewed import claim, config, device_class, parameters, template
from tests.eventually import eventually

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MANIFEST = PACKAGE_ROOT / "deploy" / "webhook.yaml"
NAME = "gpu-dra-webhook"
VERSIONS = ["v1", "v1beta2", "v1beta1"]
WRONG = config(parameters(sharing={"strategy": "Fair"}))
RIGHT = config(parameters())
OVERRIDDEN = config(parameters(sharing={"strategy": "MPS"}))


class Webhook:
    """The webhook of a cluster, which tests stop and start again."""

    def __init__(self, cluster: RealApiServer, folder: Path) -> None:
        self.cluster = cluster
        self.pair = make_pair(folder)
        self.port = 0
        self.process = self.start()

    def start(self) -> Process:
        """Start it, at the same port as before, and return when it serves."""
        files = (f"--cert-file={self.pair.cert_file}", f"--key-file={self.pair.key_file}")
        command = (sys.executable, "-P", "-m", "controller.webhook", *files, f"--addr=127.0.0.1:{self.port}")
        python_path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
        name = f"webhook-{uuid.uuid4().hex[:8]}"
        process = self.cluster.processes.start(name, command, {"PYTHONPATH": python_path})

        def serving() -> re.Match[str] | None:
            self.cluster.processes.check_running(name)
            return re.search(r'"port": (\d+)', process.log)

        said = eventually("it serves", serving, context=lambda: process.log)
        assert said is not None
        self.port = int(said[1])
        return process

    def registered(self) -> Object:
        """The configuration of the manifest, with this process in place of the Service."""
        registration = manifest("ValidatingWebhookConfiguration")
        bundle = base64.b64encode(self.pair.cert_file.read_bytes()).decode()
        url = f"https://127.0.0.1:{self.port}/validate"
        registration["webhooks"][0]["clientConfig"] = {"url": url, "caBundle": bundle}
        return registration


def manifest(kind: str) -> Object:
    """The object of this kind in deploy/webhook.yaml."""
    return copy.deepcopy(next(one for one in objects_in(MANIFEST) if one["kind"] == kind))


def dry_run(cluster: RealApiServer, stored: Object, namespace: str) -> list[str]:
    """Create an object without storing it; returns the webhook's warnings, without those of old versions."""
    path = cluster.api.collection_of(stored, namespace)
    with cluster.api.stream("POST", path, stored, query={"dryRun": "All"}) as answer:
        return [one for one in answer.headers.get_all("Warning") or () if "deprecated" not in one]


@pytest.fixture(scope="module")
def webhook(api_server: RealApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """The webhook, registered, and asked by the API server."""
    one = Webhook(api_server, tmp_path_factory.mktemp("tls"))
    api_server.api.create(one.registered())

    def refusal() -> str:
        try:
            dry_run(api_server, device_class(WRONG), "")
        except ApiRefused as error:
            return str(error)
        return ""

    eventually("it is asked", refusal, lambda text: "denied the request" in text)
    yield one
    api_server.api.delete(f"{CONFIGURATIONS}/{NAME}")
    if one.process.returncode is None:
        one.process.stop()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("make", "path"),
    [(claim, "spec.devices"), (template, "spec.spec.devices"), (device_class, "spec")],
    ids=["claim", "template", "class"],
)
def test_a_wrong_configuration_is_denied_in_every_version(
    webhook: Webhook, namespace: str, version: str, make: Any, path: str
) -> None:
    with pytest.raises(ApiRefused) as refused:
        dry_run(webhook.cluster, make(RIGHT, WRONG, version=version), namespace)

    assert (refused.value.status, refused.value.reason) == (422, "Invalid")
    assert f"{path}.config[1].opaque.parameters.sharing.strategy: must be one of" in str(refused.value)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("make", [claim, template, device_class], ids=["claim", "template", "class"])
def test_what_has_no_effect_is_stored_with_a_warning(
    webhook: Webhook, namespace: str, version: str, make: Any
) -> None:
    assert dry_run(webhook.cluster, make(RIGHT, version=version), namespace) == []

    (warning,) = dry_run(webhook.cluster, make(OVERRIDDEN, RIGHT, version=version), namespace)

    assert "config[1] comes later and wins" in warning


def test_only_what_configures_our_devices_is_sent(webhook: Webhook, namespace: str) -> None:
    """With Fail and an address that answers nothing right, whatever is sent is refused."""
    api = webhook.cluster.api
    registration = webhook.registered()
    registration["metadata"]["name"] = "all-fail"
    registration["webhooks"][0]["failurePolicy"] = "Fail"
    registration["webhooks"][0]["clientConfig"]["url"] += "/nothing"
    api.create(registration)
    foreign = config(parameters(), driver="other.example.com")
    try:
        eventually("all is refused", lambda: fails(webhook.cluster, claim(RIGHT), namespace))
        for make in (claim, template, device_class):
            assert fails(webhook.cluster, make(RIGHT), namespace)
            assert not fails(webhook.cluster, make(foreign), namespace)
            assert not fails(webhook.cluster, make(), namespace)
        assert not fails(webhook.cluster, claim(RIGHT), "kube-system")
    finally:
        api.delete(f"{CONFIGURATIONS}/all-fail")
        eventually("nothing is refused", lambda: not fails(webhook.cluster, claim(RIGHT), namespace))


def fails(cluster: RealApiServer, stored: Object, namespace: str) -> bool | None:
    """True if no object like this can be stored, for want of an answer of a webhook; None if it can."""
    try:
        dry_run(cluster, stored, namespace)
    except ApiRefused as error:
        assert "failed calling webhook" in str(error)
        return True
    return None


def test_while_it_is_away_claims_are_stored_and_stay_usable(webhook: Webhook, namespace: str) -> None:
    """What got in meanwhile can still be labelled and deleted when the webhook is back."""
    api = webhook.cluster.api
    webhook.process.kill()
    try:
        api.create(claim(WRONG), namespace)
        api.create(device_class(WRONG, name="away"))
    finally:
        webhook.process = webhook.start()
    try:
        with pytest.raises(ApiRefused, match="denied the request"):
            api.create(claim(WRONG), namespace)

        label = {"metadata": {"labels": {"team": "a"}}}
        stored = paths.resource_claim("c", namespace)
        labelled = api.get(stored)  # a patch would write the parameters anew, without the blanks that we sent
        labelled["metadata"]["labels"] = {"team": "a"}
        assert api.replace(stored, labelled)["metadata"]["labels"] == {"team": "a"}
        assert api.patch(paths.device_class("away"), label)["metadata"]["labels"] == {"team": "a"}
        with pytest.raises(ApiRefused, match=r"spec.config\[1\]"):
            api.patch(paths.device_class("away"), {"spec": {"config": [WRONG, WRONG]}})
        assert api.patch(paths.device_class("away"), {"spec": {"config": [RIGHT]}})
        api.delete(stored)
        assert api.find(stored) is None
    finally:
        with contextlib.suppress(ApiRefused):
            api.delete(paths.device_class("away"))


def test_a_renewed_certificate_is_served_to_the_api_server(webhook: Webhook, namespace: str) -> None:
    make_pair(webhook.pair.cert_file.parent)
    path = f"{CONFIGURATIONS}/{NAME}"
    changed = webhook.registered()
    webhook.cluster.api.patch(path, {"webhooks": changed["webhooks"]})

    def denied() -> bool:
        try:
            dry_run(webhook.cluster, claim(WRONG), namespace)
        except ApiRefused:
            return True
        return False  # the API server still trusts the old one, and the policy is Ignore

    eventually("the new certificate is trusted", denied)
