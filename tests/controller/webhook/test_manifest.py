"""deploy/webhook.yaml fits the program: flags, ports, labels, and what the API server is to send."""

from pathlib import Path

import yaml

from controller.webhook.__main__ import main
from controller.webhook.review import CLASS_KINDS
from controller.webhook.subject import GROUP, REVIEWED_KINDS, VERSIONS
from tests.clusters import Object

ROOT = Path(__file__).parents[3]
OBJECTS: Object = {
    one["kind"]: one for one in yaml.safe_load_all((ROOT / "deploy" / "webhook.yaml").read_text())
}
POD: Object = OBJECTS["Deployment"]["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
(WEBHOOK,) = OBJECTS["ValidatingWebhookConfiguration"]["webhooks"]


def test_the_flags_are_understood_and_the_files_are_where_the_secret_is_mounted() -> None:
    assert CONTAINER["command"] == ["gpu-dra-webhook"]
    with main.make_context("webhook", list(CONTAINER["args"])) as context:
        flags = context.params
    (mount,) = CONTAINER["volumeMounts"]
    assert "subPath" not in mount  # such a file is never renewed
    assert flags["cert_file"] == Path(mount["mountPath"], "tls.crt")
    assert flags["key_file"] == Path(mount["mountPath"], "tls.key")
    assert set(flags["classes"].split(",")) >= CLASS_KINDS.keys()
    ports = {port["name"]: f":{port['containerPort']}" for port in CONTAINER["ports"]}
    addresses = {"https": "addr", "health": "health_addr", "metrics": "metrics_addr"}
    assert ports == {name: flags[flag] for name, flag in addresses.items()}


def test_it_has_no_rights() -> None:
    assert POD["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in POD["spec"]
    security = CONTAINER["securityContext"]
    assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})


def test_every_kind_and_version_that_is_judged_is_sent_and_nothing_waits_long_for_it() -> None:
    sent = {resource for rule in WEBHOOK["rules"] for resource in rule["resources"]}
    assert sent == {f"{kind.lower()}{'es' if kind.endswith('s') else 's'}" for kind in REVIEWED_KINDS}
    assert all(
        (rule["apiGroups"], rule["apiVersions"]) == ([GROUP], [*VERSIONS]) for rule in WEBHOOK["rules"]
    )
    assert WEBHOOK["failurePolicy"] == "Ignore"
    assert WEBHOOK["timeoutSeconds"] <= 5
