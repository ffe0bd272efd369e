"""The page shows what the cluster has, tells of every change, and is refused to whom it is not for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driver.errors import ConfigError
from envtest.client import paths
from envtest.embedded.api.faults import ALWAYS
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.web.serve import streams
from gpuctl.web.serve.guard import HEADERS, host_name
from gpuctl.web.serve.server import bound, is_loopback
from gpuctl.web.watch.state import ClusterState
from tests.costly_selector import COSTLY_SELECTOR
from tests.gpuctl.web.pages import (
    DRA,
    Page,
    add_claim,
    add_class,
    give,
    page_of,
    publish,
    tags,
    waiting_pod,
    words,
)

FIRST = "gpu-0000-1b-00-0"


def test_a_claim_that_gets_a_gpu_is_shown_with_its_pods_and_its_class_and_told_in_history(page: Page) -> None:
    add_claim(page, "train")
    assert "8 GPUs: 8 free" in words(page.get("/").text)

    give(page, "train", FIRST, users=("trainer",))

    page.wait_words("/", "8 GPUs: 7 free, 1 whole", f"default/train got node-a/gpu.nvidia.com/{FIRST}")
    shown = page.wait_words("/node/node-a", "whole, 100 % held by 1 claim", "default/train", "trainer")
    assert "gpu.nvidia.com trainer" in shown
    give(page, "train", None)
    page.wait_words("/", "8 GPUs: 8 free", "default/train released")


def test_a_tier_counts_devices_claims_and_pods_that_wait(page: Page) -> None:
    add_claim(page, "held")
    give(page, "held", FIRST)
    add_claim(page, "asked")
    page.api.create(waiting_pod("hopes", "asked"))

    page.wait_words("/", "gpu.nvidia.com 1 of 8 held, 7 free, 0 unavailable 8 1 7 0 1 1")


def test_a_taint_makes_a_gpu_sick_until_it_is_gone(page: Page) -> None:
    (stored,) = page.api.list_objects(f"{DRA}/resourceslices")
    path = f"{DRA}/resourceslices/{stored['metadata']['name']}"
    stored["spec"]["devices"][0]["taints"] = [
        {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    ]
    stored = page.api.replace(path, stored)

    sick = page.wait_words("/", "gpu.nvidia.com/xid=79:NoSchedule", "1 unavailable; 1 sick")
    assert "XID 79 (the GPU fell off the bus): drain the node and restart the machine" in sick
    del stored["spec"]["devices"][0]["taints"]
    page.api.replace(path, stored)

    well = page.wait_words("/", "No device is tainted", "8 GPUs: 8 free")
    assert "taint gpu.nvidia.com/xid=79:NoSchedule removed" in well
    assert "taint gpu.nvidia.com/xid=79:NoSchedule removed" in words(page.get("/history").text)


def test_a_pod_that_waits_is_shown_with_the_answer_of_explain(page: Page) -> None:
    page.api.create(waiting_pod("lonely", "missing"))

    overview = page.wait_words(
        "/", "default/lonely", "the claim missing that the pod names as gpu does not exist"
    )
    assert "Waiting pods 1" in overview
    page.wait_words("/pod/default/lonely", "waits", "What helps: create it, or end the pod")
    page.api.delete(paths.pod("lonely"))
    page.wait_words("/pod/default/lonely", "This pod does not wait for devices")
    page.wait_words("/", "No pod waits for devices", "default/lonely no longer waits")


def test_the_answer_follows_the_cluster(page: Page) -> None:
    add_claim(page, "many", "absent")
    page.api.create(waiting_pod("patient", "many"))
    page.wait_words("/pod/default/patient", "the DeviceClass absent does not exist")

    add_class(page.api_server, "absent")

    page.wait_words("/pod/default/patient", "fits")


def test_a_pod_whose_selector_costs_too_much_is_told_so_and_the_next_pod_has_its_answer(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuctl.explain.answer.SELECTOR_SECONDS", 0.02)
    add_claim(page, "costly", selector=COSTLY_SELECTOR)
    page.api.create(waiting_pod("greedy", "costly"))
    page.wait_words(
        "/pod/default/greedy", "takes too long to work out", "request gpu of claim default/costly"
    )

    add_claim(page, "cheap", selector="device.driver == 'nobody.example.com'")
    page.api.create(waiting_pod("modest", "cheap"))

    page.wait_words("/pod/default/modest", "not true for these: device.driver == 'nobody.example.com'")


def test_a_window_hears_of_a_change_and_fetches_only_what_is_otherwise(page: Page) -> None:
    def marks(have: str = "") -> dict[str, str]:
        answer = page.get(f"/live/?have={have}")
        return {name: part["mark"] for name, part in json.loads(answer.body).items()}

    add_claim(page, "train")
    with page.stream() as lines:
        while not next(lines).startswith("data:"):
            pass
        known = marks()
        assert set(known) == {"summary", "sick", "waiting", "tiers", "nodes", "history"}
        assert marks(",".join(f"{name}.{mark}" for name, mark in known.items())) == {}

        give(page, "train", FIRST)

        while not next(lines).startswith("data:"):
            pass
    page.wait_words("/", "7 free")
    changed = marks(",".join(f"{name}.{mark}" for name, mark in known.items()))
    assert {"summary", "tiers", "nodes", "history"} == set(changed)


def test_a_watch_that_fails_is_told_and_what_was_known_stays(page: Page) -> None:
    page.api_server.stop()

    page.wait_words("/", "Not up to date", "node-a", "8 free")


def test_more_windows_than_it_has_places_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams.Streams.__init__, "__defaults__", (2, streams.BEAT_SECONDS))
    with (
        EmbeddedApiServer() as api_server,
        page_of(api_server, tmp_path / "config") as page,
        page.stream() as first,
        page.stream() as second,
    ):
        assert next(first)
        assert next(second)
        assert page.get("/events").status == 503
        assert page.get("/").status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8470", "localhost.", "", "[::2]:1"])
def test_a_request_to_a_foreign_name_is_refused(still: Page, host: str) -> None:
    answer = still.get("/", Host=host)

    assert (answer.status, "node-a" in answer.text) == (421, False)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8470", "page.example"])
def test_a_request_to_a_known_name_is_answered(tmp_path: Path, host: str) -> None:
    with EmbeddedApiServer() as api_server, page_of(api_server, tmp_path / "c", ("page.example",)) as page:
        assert page.get("/", Host=host).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_is_answered(still: Page, method: str) -> None:
    assert still.get("/", method).status == 405


def test_what_another_site_asks_for_is_refused_and_a_link_from_there_is_not(still: Page) -> None:
    assert still.get("/events", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors").status == 403
    assert still.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert still.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert still.get("/", Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors").status == 200


@pytest.mark.parametrize("path", ["/", "/events-not", "/static/page.js", "/node/none"])
def test_every_answer_has_the_headers(still: Page, path: str) -> None:
    answer = still.get(path)

    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert answer.headers["Server"] is None


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/static/../command.py", 404),
        ("/static/%2e%2e%2fcommand.py", 404),
        ("/etc", 404),
        (f"/?q={'x' * 5000}", 414),
    ],
)
def test_what_is_not_there_is_not_served(still: Page, path: str, status: int) -> None:
    assert still.get(path).status == status


@pytest.mark.parametrize(
    "query", ["page=0", "page=-1", "page=99999999999", "page=x", "show=all", "q=%00%ff", "have=a"]
)
def test_a_query_without_sense_shows_the_page(still: Page, query: str) -> None:
    assert (
        "8 free" in words(still.get(f"/?{query}").text)
        or "No node matches the filter" in still.get(f"/?{query}").text
    )


def test_long_lists_come_in_pages_with_the_sick_first(tmp_path: Path) -> None:
    with EmbeddedApiServer() as api_server:
        for number in range(60):
            (stored,) = publish(api_server, f"node-{number:02}")
        stored["spec"]["devices"][3]["taints"] = [{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}]
        api_server.replace(f"{DRA}/resourceslices/{stored['metadata']['name']}", stored)
        with page_of(api_server, tmp_path / "config") as page:
            first, second = (page.get(path).text for path in ("/", "/?page=2"))
            found = page.get("/?q=NODE-07&show=free").text

    def nodes(html: str) -> list[str]:
        return [str(one["data-key"]) for tag, one in tags(html) if tag == "tr" and "data-key" in one]

    # The first row is what is sick.
    assert nodes(first)[1:4] == ["node-59", "node-00", "node-01"]
    assert (len(nodes(first)), len(nodes(second))) == (51, 11)
    assert nodes(found)[1:] == ["node-07"]
    assert "page 1 of 2, 60 in total" in words(first)


@pytest.mark.parametrize("address", ["127.0.0.1", ":x", "127.0.0.1:70000", "no such host:1"])
def test_a_wrong_address_is_told(address: str) -> None:
    with pytest.raises(ConfigError):
        bound(address)


def test_what_only_this_machine_reaches_is_known() -> None:
    assert [is_loopback(one) for one in ("127.0.0.1:1", "localhost:1", "[::1]:1")] == [True] * 3
    assert [is_loopback(one) for one in (":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1")] == [False] * 4
    with pytest.raises(ConfigError, match="'foo' is not an address: write host:port"):
        is_loopback("foo")
    assert [host_name(one) for one in ("a:1", "[::1]:2", "A", "::1")] == ["a", "::1", "a", ":"]


def test_what_this_user_may_not_read_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    with EmbeddedApiServer() as api_server:
        publish(api_server)
        api_server.fail("list", "/api/v1/nodes", code=403, times=ALWAYS)
        with page_of(api_server, tmp_path / "config") as page:
            text = page.wait_words(
                "/", "Not shown, because this user may not read them: nodes", "8 GPUs: 8 free"
            )

    assert "Not up to date" not in text


def test_an_api_server_that_is_gone_is_one_line_and_nothing_is_called_live(tmp_path: Path) -> None:
    with EmbeddedApiServer() as api_server:
        publish(api_server)
        with page_of(api_server, tmp_path / "config") as page:
            fresh = page.get("/live/")
            api_server.stop()
            page.wait_words("/", "Not up to date: everything: the API server cannot be reached")
            whole, part = page.get("/node/node-a"), page.get("/live/node/node-a")

    assert 'data-state="lost"' in whole.text
    assert [one.headers.get("X-Stale") for one in (fresh, part)] == [None, "yes"]


def test_pods_that_fail_are_problems_and_so_is_a_node_without_its_slices(page: Page) -> None:
    assert "no pod of the driver or with devices fails" in words(page.get("/").text)
    pod = {"apiVersion": "v1", "kind": "Pod"}
    driver = {"name": "controller", "labels": {"app.kubernetes.io/part-of": "gpu-dra"}}
    container = {"name": "main", "image": "a"}
    page.api.create({**pod, "metadata": driver, "spec": {"nodeName": "node-b", "containers": [container]}})
    add_claim(page, "train")
    give(page, "train", FIRST, pool="node-b/gpu.nvidia.com")
    page.api.create(waiting_pod("stuck", "train", nodeName="node-a"))
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    status = {
        "name": "main",
        "image": "a",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": waiting,
    }
    page.api.patch(f"{paths.pod('stuck')}/status", {"status": {"containerStatuses": [status]}})

    page.wait_words(
        "/",
        "node-b its slices it publishes nothing, although claims have devices there (default/train)",
        "node-b pod default/controller it is not ready: Pending",
        "node-a pod default/stuck it cannot start: container main: ErrImagePull no such image",
    )


def test_a_fault_of_the_server_itself_is_told_on_the_page(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("metadata")

    monkeypatch.setattr(ClusterState, "update", fails)
    add_claim(page, "train")

    page.wait_words("/", "Not up to date: the server has failed (KeyError: 'metadata')", "8 GPUs: 8 free")
