"""The DaemonSet that cleans nodes is the plugin's, told to retire; its pods say how far it is."""

from typing import Any

import pytest

from controller.uninstall.cluster import PAUSED
from controller.uninstall.steps import NAME, Progress, progress, retiring
from tests.clusters import Object
from tests.controller.uninstall.played_cluster import daemon_set


def plugin() -> Object:
    """The plugin's DaemonSet while it rests, with what a chart gives it."""
    body = daemon_set("gpu-dra-kubeletplugin")
    pod = body["spec"]["template"]["spec"]
    pod |= {"nodeSelector": {"gpu": "yes", PAUSED: "true"}, "tolerations": [{"operator": "Exists"}]}
    pod["containers"][0] |= {
        "livenessProbe": {"httpGet": {"path": "/livez", "port": 9502}},
        "startupProbe": {"httpGet": {"path": "/startupz", "port": 9502}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 9502}, "initialDelaySeconds": 30},
        "securityContext": {"privileged": True},
    }
    return body


def test_it_runs_where_the_plugin_did_with_its_rights_until_it_is_ready_and_is_never_ended() -> None:
    one = plugin()
    template = retiring(one, PAUSED)["spec"]["template"]
    [container] = template["spec"]["containers"]

    assert template["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert template["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert container["securityContext"] == {"privileged": True}
    assert container["args"] == ["--plugins-dir=/plugins", "--retire"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["readinessProbe"]["initialDelaySeconds"] == 0
    assert not container.keys() & {"livenessProbe", "startupProbe"}
    labels = template["metadata"]["labels"]
    assert not one["spec"]["selector"]["matchLabels"].items() <= labels.items(), "the plugin's selector"
    assert one == plugin(), "the plugin's own object stays as it is"


def pod(node: str, **status: Any) -> Object:
    return {"spec": {"nodeName": node}, "status": status}


READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ({"exitCode": 1, "message": "trying\nError: a pod runs\n"}, "Error: a pod runs"),
        ({"exitCode": 137}, "its container ended with status 137"),
    ],
)
def test_a_pod_that_ended_says_why(ended: Object, said: str) -> None:
    one = pod("a", containerStatuses=[{"state": {"waiting": {}}, "lastState": {"terminated": ended}}])

    assert progress({"metadata": {}}, [one]).failed == {"a": said}


def test_nodes_are_clean_busy_or_without_a_pod_so_far() -> None:
    seen = {"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "desiredNumberScheduled": 4}}
    pods = [pod("a", **READY), pod("b"), pod("c", phase="Pending")]

    assert progress(seen, pods) == Progress(frozenset({"a"}), frozenset({"b", "c"}), {}, 1)


def test_until_the_daemon_set_was_seen_nodes_may_be_missing() -> None:
    unseen = {"metadata": {"generation": 2, "name": NAME}, "status": {"observedGeneration": 1}}

    assert progress(unseen, []).missing > 0
    assert progress(unseen, [pod("a", **READY)]).missing > 0
