"""The manifests of ``deploy/`` are parts of the rendered chart, and the API server takes all of the chart."""

import yaml

from controller.uninstall.steps import Patience
from envtest.client.api import APPLY, FIELD_MANAGER
from tests.clusters import DRIVER_NAMESPACE, Object, RealApiServer
from tools.chart.values import opt_in_toggles
from tools.testbed.chart import NAMESPACE, rendered, rendered_text, stale_manifests

HELM_WAITS_SECONDS = 300
STRICT = {"fieldManager": FIELD_MANAGER, "force": "true", "dryRun": "All", "fieldValidation": "Strict"}


def take(api_server: RealApiServer, objects: list[Object]) -> None:
    """Have the API server check objects, every field of which it has to know."""
    api = api_server.api
    for manifest in objects:
        api.request(
            "PATCH", api.path_of(manifest, DRIVER_NAMESPACE), manifest, content_type=APPLY, query=STRICT
        )


def test_no_manifest_is_stale() -> None:
    assert list(stale_manifests()) == [], "run make manifests"


def test_the_api_server_takes_the_chart_and_knows_every_field(api_server: RealApiServer) -> None:
    values = {"mps": {"enabled": True}, "optInClasses": dict.fromkeys(opt_in_toggles(), True)}

    take(api_server, [NAMESPACE, *rendered(values)])


def test_the_uninstallation_can_be_applied_by_hand(api_server: RealApiServer) -> None:
    """As docs/lifecycle.md has it for those who have no release of helm."""
    values = {"uninstall": {"rendered": True}}
    text = "".join(
        rendered_text(values, only=f"uninstall-{name}.yaml", hooks=True) for name in ("rights", "job")
    )
    made = [one for one in yaml.safe_load_all(text) if one]

    assert {one["kind"] for one in made} >= {"Job", "ServiceAccount", "ValidatingAdmissionPolicy"}
    assert {one["metadata"]["name"] for one in made} == {"gpu-dra-uninstall"}
    take(api_server, made)


def test_a_job_that_cannot_begin_ends_before_helm_stops_waiting_and_no_other_is_cut_short() -> None:
    (job,) = yaml.safe_load_all(
        rendered_text({"uninstall": {"rendered": True}}, only="uninstall-job.yaml", hooks=True)
    )
    patience = Patience()
    of_a_clean_run = patience.nodes_seconds + patience.settle_seconds + 2 * patience.pods_seconds

    assert of_a_clean_run < job["spec"]["activeDeadlineSeconds"] < HELM_WAITS_SECONDS


def test_who_renders_the_chart_without_a_cluster_does_not_uninstall_by_applying_it() -> None:
    assert "gpu-dra-uninstall" not in rendered_text({}, hooks=True)
