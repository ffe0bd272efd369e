"""Whatever tenants and nodes write into names, labels and messages is text, and hides nobody else's GPUs."""

from collections.abc import Sequence

import pytest

from gpuctl.explain.findings import ExplainedObject, Finding, NodeReport, Outcome, RequestReport
from gpuctl.fleet.cluster import Fleet
from gpuctl.fleet.seen import Seen
from gpuctl.web.classes import ClassDevices
from gpuctl.web.pages import Pages
from gpuctl.web.view import View, view_of
from tests.clusters import Explanation, Object
from tests.gpuctl.fleet.published import claim
from tests.gpuctl.fleet.test_nodes import DEVICES, slices
from tests.gpuctl.web.pages import tags

MARK = "pwned"
HOSTILE = [
    f"<script>{MARK}()</script>",
    f'"><img src=x onerror={MARK}()>',
    f"'><svg onload={MARK}()>",
    f"javascript:{MARK}()",
    f"{{{{ {MARK} }}}}</td></table><iframe src=//{MARK}>",
    f"]]>--><!--{MARK}\x00\u202e\x9b",
]


def seen_as(seen: Seen, nodes: Sequence[Object] = (), classes: Sequence[Object] = ()) -> View:
    return view_of("2026-01-02T03:04:05Z", seen, nodes, classes, ("pods",), Fleet(), ClassDevices())


def hostile(text: str) -> View:
    """A cluster in which everything is called so."""
    (item,) = slices("")
    device = item["spec"]["devices"][0]
    device["taints"] = [{"key": "example.com/sick", "value": text, "effect": "NoSchedule"}]
    for name in ("productName", "uuid", "driverVersion", "resource.kubernetes.io/pciBusID"):
        (kind,) = device["attributes"][name]
        device["attributes"][name] = {kind: text if kind == "string" else "1.0.0"}
    device["attributes"]["migWithheld"] = {"string": text}
    item["spec"]["nodeName"] = item["spec"]["pool"]["name"] = text
    name = item["spec"]["devices"][1]["name"]
    result = {"request": text, "driver": "gpu.nvidia.com", "pool": text, "device": name, "shareID": None}
    sick = {"type": "Ready", "status": "False", "reason": text, "message": text}
    held: Object = {
        "metadata": {"namespace": text, "name": text},
        "spec": {"devices": {"requests": [{"name": text, "exactly": {"deviceClassName": text}}]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": text, "uid": text}],
            "devices": [{**result, "conditions": [sick]}],
        },
    }
    asks = [{"name": "a", "resourceClaimName": text}]
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
    pod: Object = {
        "metadata": {"namespace": text, "name": text, "uid": "1", "creationTimestamp": text},
        "spec": {"containers": [], "resourceClaims": asks},
        "status": {"conditions": [waits]},
    }
    stuck: Object = {
        "metadata": {"namespace": text, "name": f"{text}2", "uid": "2", "creationTimestamp": text},
        "spec": {"containers": [], "nodeName": text, "resourceClaims": asks},
    }
    about = {"kind": "Pod", "namespace": text, "name": text, "uid": "2"}
    failed = {"reason": "FailedPrepareDynamicResources", "message": text, "involvedObject": about}
    said = {"message": f"{text} is not offered: {text}", "involvedObject": {"kind": "Node", "name": "other"}}
    seen = Seen([item], [held], [pod, stuck], [stuck], [failed], [said])
    node = {"metadata": {"name": text}, "spec": {"unschedulable": True}}
    return seen_as(seen, [node], [{"metadata": {"name": text}, "spec": {"selectors": []}}])


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_it_becomes_html(text: str) -> None:
    view, pages = hostile(text), Pages(text)
    assert view.nodes
    assert view.waiting
    assert len(view.problems) >= 5
    outcome = Outcome(text, text, (text,), (text,))
    report = RequestReport(text, text, text, (NodeReport(text, (outcome,), (text,), text),))
    about, finding = ExplainedObject("Pod", text, text), Finding(text, text, text)
    answer = Explanation(about, "waits", text, (finding,), (report,), unread=(text,))
    for html in (
        pages.overview(view, text, {"q": text}, {(view.waiting[0].namespace, view.waiting[0].name): answer}),
        pages.overview(view, "", {}, {}),
        pages.node(view, text, text),
        pages.pod(view, text, view.waiting[0].key, answer, text),
        pages.unread(text),
    ):
        assert MARK in html
        assert not {"\x00", "\x9b", "\u202e"}.intersection(html)
        for tag, attributes in tags(html):
            assert tag not in ("img", "iframe", "object", "style", "base")
            assert tag != "script" or attributes == {"src": "/static/page.js", "defer": None}
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            for name in ("href", "src", "action"):
                link = attributes.get(name)
                assert link is None or link.startswith(("/", "?", "#")), link
                assert link is None or not link.startswith("//"), link


def test_a_slice_that_makes_no_sense_is_a_problem_of_its_node_alone() -> None:
    ((bad,), (good,)) = slices(""), slices("")
    bad["metadata"]["name"] = "bad"
    bad["spec"] |= {"nodeName": "node-b", "pool": {**bad["spec"]["pool"], "name": "node-b"}}
    bad["spec"]["devices"][0]["capacity"] = {"memory": {"value": "much"}}

    view = seen_as(Seen([bad, good], [claim("train", DEVICES[""][0])]))

    assert [node.name for node in view.nodes] == ["node-b", "node-a"]
    assert (view.summary.gpus, view.summary.in_use) == (16, 1)
    assert [one.nodes for one in view.problems] == [("node-b",)]
