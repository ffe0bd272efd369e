"""The page shows what the cluster has and what is wrong, and says when that is not up to date."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.embedded.server import ALWAYS
from gpuctl.web.guard import HEADERS, host_name
from gpuctl.web.server import is_loopback
from tests.clusters import EmbeddedApiServer, paths
from tests.gpuctl.approved import approve
from tests.gpuctl.web.busy_cluster import BY_LIMIT, FAILING, LONG_NODE, NODE, WAITING, add_everything
from tests.gpuctl.web.pages import (
    DRA,
    Page,
    add_claim,
    add_class,
    give,
    lines,
    page_of,
    publish,
    waiting_pod,
    words,
)
from tests.gpus import ConfigError

FIRST = "gpu-0000-1b-00-0"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page with something of everything."""
    with EmbeddedApiServer() as api_server:
        publish(api_server, config="all-tiers")
        add_class(api_server)
        add_class(api_server, "monitoring")
        with page_of(api_server, tmp_path_factory.mktemp("busy") / "config") as served:
            add_everything(served)
            yield served


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("overview", ""),
        ("node", f"node/{NODE}"),
        ("other-node", f"node/{LONG_NODE}"),
        ("no-node", "node/none"),
        ("waiting-pod", f"pod/{WAITING}"),
        ("pod-by-limit", f"pod/default/{BY_LIMIT}"),
        ("failing-pod", f"pod/default/{FAILING}"),
        ("no-pod", "pod/default/none"),
    ],
)
def test_it_shows_what_is_approved(busy: Page, name: str, path: str) -> None:
    told = busy.get(f"/{path}")

    assert told.status == 200
    approve(f"web/{name}", lines(told.text) + "\n")


def test_a_claim_that_comes_and_goes_is_shown_and_so_is_a_pod(page: Page) -> None:
    add_claim(page, "train")
    give(page, "train", FIRST, users=("trainer",))
    page.api.create(waiting_pod("lonely", "missing"))
    page.wait_words("/", "8 GPUs: 7 free, 1 whole", "default/lonely", "1 of 8 held, 7 free")
    page.wait_words("/pod/default/lonely", "What helps: create it, or end the pod")

    give(page, "train", None)
    page.api.delete(paths.pod("lonely"))

    page.wait_words("/", "8 GPUs: 8 free", "No pod waits for devices", "0 of 8 held, 8 free")
    page.wait_words("/pod/default/lonely", "There is no such pod")


def test_an_api_server_that_is_gone_is_one_line_and_what_was_known_stays(page: Page) -> None:
    assert 'data-state="new"' in page.get("/").text
    page.api_server.stop()

    for path in ("/", "/node/node-a"):
        told = page.wait_words(path, "Not up to date: the API server cannot be reached", "8 free")
        shown = page.get(path).text
        assert told.count("Not up to date") == 1
        assert "This is the state of TIME." in told
        assert 'data-state="old"' in shown
        assert 'data-state="new"' not in shown


def test_without_a_first_reading_it_says_why(tmp_path: Path) -> None:
    with EmbeddedApiServer() as api_server, page_of(api_server, tmp_path / "config") as page:
        api_server.stop()
        told = page.get("/")

    assert told.status == 503
    assert "Not up to date: the API server cannot be reached" in words(told.text)


def test_what_this_user_may_not_read_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    with EmbeddedApiServer() as api_server:
        publish(api_server)
        for path in ("/api/v1/nodes", "/api/v1/pods"):
            api_server.fail("list", path, code=403, times=ALWAYS)
        with page_of(api_server, tmp_path / "config") as page:
            text = words(page.get("/").text)

    assert "Not shown, because this user may not read them: pods, nodes." in text
    assert "8 GPUs: 8 free" in text
    assert "not up to date" not in text.lower()


def test_long_lists_come_in_pages_with_the_sick_first(tmp_path: Path) -> None:
    with EmbeddedApiServer() as api_server:
        for number in range(60):
            (stored,) = publish(api_server, f"node-{number:02}")
        stored["spec"]["devices"][3]["taints"] = [{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}]
        api_server.replace(f"{DRA}/resourceslices/{stored['metadata']['name']}", stored)
        with page_of(api_server, tmp_path / "config") as page:
            first, second, found = (
                page.get(path).text for path in ("/", "/?page=2", "/?q=NODE-07&show=free")
            )

    def nodes(html: str) -> list[str]:
        rows = lines(html).partition("Node | Model")[2].splitlines()
        return [row.split()[1] for row in rows if row.startswith("| node-")]

    assert nodes(first)[:3] == ["node-59", "node-00", "node-01"]
    assert (len(nodes(first)), len(nodes(second)), nodes(found)) == (50, 10, ["node-07"])
    assert "page 1 of 2, 60 in total" in words(first)


FOREIGN = ("evil.example", "127.0.0.1.evil.example:8470", "localhost.", "", "[::2]:1")
KNOWN = ("localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8470", "page.example")


@pytest.mark.parametrize("path", ["/", "/not-there", "/static/page.js", "/node/none"])
def test_every_answer_has_the_headers(still: Page, path: str) -> None:
    answer = still.get(path)

    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert answer.headers["Server"] is None


REQUESTS: list[tuple[str, str, dict[str, str], int]] = [
    *(("GET", "/", {"Host": host}, 421) for host in FOREIGN),
    *(("GET", "/", {"Host": host}, 200) for host in KNOWN),
    *((method, "/", {}, 405) for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS")),
    ("GET", "/", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"}, 403),
    ("GET", "/", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403),
    ("GET", "/", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 200),
    ("GET", "/", {"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors"}, 200),
    ("GET", "/static/../command.py", {}, 404),
    ("GET", "/static/%2e%2e%2fcommand.py", {}, 404),
    ("GET", "/etc", {}, 404),
    ("GET", f"/?q={'x' * 5000}", {}, 414),
]


@pytest.mark.parametrize(("method", "path", "headers", "status"), REQUESTS, ids=str)
def test_only_its_pages_are_read_by_its_names(
    still: Page, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = still.get(path, method, **headers)

    assert (answer.status, "node-a" in answer.text) == (status, status == 200)


def test_what_only_this_machine_reaches_is_known() -> None:
    assert [is_loopback(one) for one in ("127.0.0.1:1", "localhost:1", "[::1]:1")] == [True] * 3
    assert [is_loopback(one) for one in (":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1")] == [False] * 4
    with pytest.raises(ConfigError, match="'foo' is not an address: write host:port"):
        is_loopback("foo")
    assert [host_name(one) for one in ("a:1", "[::1]:2", "A", "::1")] == ["a", "::1", "a", ":"]
