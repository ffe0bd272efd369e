"""Whatever tenants write into names, labels and messages is text: no element and no attribute is theirs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuctl.explain.findings import (
    ExplainedObject,
    Explanation,
    Finding,
    NodeReport,
    Outcome,
    RequestReport,
)
from gpuctl.web.seen.view import View
from gpuctl.web.serve.query import Query
from gpuctl.web.serve.rendering import Renderer
from gpuctl.web.watch.answers import Answer
from gpuctl.web.watch.state import ClusterState
from tests.gpuctl.fleet.test_nodes import slices
from tests.gpuctl.web.pages import tags

Object = dict[str, Any]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MARK = "pwned"
HOSTILE = [
    f"<script>{MARK}()</script>",
    f'"><img src=x onerror={MARK}()>',
    f"'><svg onload={MARK}()>",
    f"javascript:{MARK}()",
    f"{{{{ {MARK} }}}}</td></table><iframe src=//{MARK}>",
    f"]]>--><!--{MARK}\x00\u202e\x9b",
]


def view(text: str) -> View:
    """A cluster in which everything is called so."""
    state = ClusterState()
    (item,) = slices("")
    device = item["spec"]["devices"][0]
    device["taints"] = [{"key": "example.com/sick", "value": text, "effect": "NoSchedule"}]
    for name in ("productName", "uuid", "driverVersion", "resource.kubernetes.io/pciBusID"):
        (kind,) = device["attributes"][name]
        device["attributes"][name] = {kind: text if kind == "string" else "1.0.0"}
    device["attributes"]["migWithheld"] = {"string": text}
    item["spec"]["nodeName"] = item["spec"]["pool"]["name"] = text
    pool, name = item["spec"]["pool"]["name"], item["spec"]["devices"][1]["name"]
    result = {"request": text, "driver": "gpu.nvidia.com", "pool": pool, "device": name, "shareID": None}
    sick = {"type": "Ready", "status": "False", "reason": text, "message": text}
    claim: Object = {
        "metadata": {"namespace": text, "name": text},
        "spec": {"devices": {"requests": [{"name": text, "exactly": {"deviceClassName": text}}]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": text, "uid": text}],
            "devices": [{**result, "conditions": [sick]}],
        },
    }
    pod: Object = {
        "metadata": {"namespace": text, "name": text, "uid": text, "creationTimestamp": text},
        "spec": {
            "containers": [],
            "nodeName": text,
            "resourceClaims": [{"name": "a", "resourceClaimName": text}],
        },
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": text}]},
    }
    about = {"kind": "Pod", "namespace": text, "name": text}
    node = {"metadata": {"name": text}, "spec": {"unschedulable": True}}
    for news in (False, True):
        for kind, one in (
            ("node", node),
            ("slice", item),
            ("class", {"metadata": {"name": text}, "spec": {"selectors": []}}),
            ("claim", claim),
            ("pod", pod),
            ("event", {"type": "Warning", "reason": text, "message": text, "involvedObject": about}),
        ):
            state.update(kind, one, NOW, gone=False, news=news)  # type: ignore[arg-type]  # a kind
    return state.refresh(NOW, synced=True, failing=(text,), has_time=lambda: True)


def answer(text: str) -> Answer:
    outcome = Outcome(text, text, (text,), (text,))
    report = RequestReport(text, text, text, (NodeReport(text, (outcome,), (text,), text),))
    about, finding = ExplainedObject("Pod", text, text), Finding(text, text, text)
    found = Explanation(about, "waits", text, (finding,), (report,), unread=(text,))
    return Answer("1", 1, 0.0, found)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_it_becomes_html(text: str) -> None:
    seen = view(text)
    assert seen.nodes
    assert seen.waiting
    assert seen.history
    renderer = Renderer(text, lambda _: answer(text), lambda _: answer(text))
    query = Query(filter=text)
    pages = [
        renderer.page("overview", renderer.overview(seen, 1, query), view=seen, query=query),
        renderer.page("overview", renderer.overview(seen, 1, Query()), view=seen, query=Query()),
        renderer.page("history", renderer.history(seen, query), view=seen),
        renderer.page("node", renderer.node(seen, text), view=seen, name=text),
        renderer.page("pod", renderer.pod(seen, f"{text}/{text}"), view=seen, key=f"{text}/{text}"),
    ]
    for html in pages:
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


def test_what_goes_out_as_json_is_escaped_as_well() -> None:
    renderer = Renderer("test", lambda _: None, lambda _: None)

    part = renderer.overview(view(HOSTILE[0]), 1, Query())["sick"]

    sent = json.loads(json.dumps({"html": part.html}))["html"]
    assert f"&lt;script&gt;{MARK}" in sent
    assert f"<script>{MARK}" not in sent
