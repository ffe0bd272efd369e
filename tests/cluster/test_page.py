"""The page in a browser: live on a real cluster, by keyboard, light and dark, and safe from hostile names."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import DriverNode, EmbeddedApiServer, fresh_namespace, paths
from tests.flow.claims import gpu_pod, make_template, start
from tests.flow.page_scene import served_page
from tests.gpuctl.web.pages import DRA, Page, add_claim, add_class, give, page_of, publish, waiting_pod
from tools.testbed.chromium import Tab, chromium

FOCUSED = (
    "document.activeElement.tagName + ' ' + (document.activeElement.innerText || document.activeElement.id)"
)
WIDTH_OF_TELEPHONES = 360


@pytest.fixture
def tab() -> Iterator[Tab]:
    """A browser's tab in a window of a usual size."""
    with chromium() as opened:
        opened.size(1280, 900)
        yield opened


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """A page over an embedded API server with one node."""
    with EmbeddedApiServer() as api_server:
        publish(api_server, config="all-tiers")
        add_class(api_server)
        with page_of(api_server, tmp_path / "config") as served:
            yield served


def test_on_a_real_cluster_it_shows_without_a_reload_what_changes(
    driver: DriverNode, tab: Tab, tmp_path: Path
) -> None:
    cluster = driver.cluster
    with fresh_namespace(cluster.api) as namespace, served_page(cluster) as page:
        make_template(cluster, namespace)
        tab.open(page.address)
        tab.wait_text("8 GPUs: 8 free")
        tab.evaluate("window.loadedOnce = true")

        start(cluster, namespace, gpu_pod("train"))

        tab.wait_text("8 GPUs: 7 free, 1 whole")
        driver.machine.lose(7)
        tab.wait_text("gpu.nvidia.com/gpu-lost", timeout_seconds=60)
        tab.picture(tmp_path / "real.png")
        driver.machine.restore(7)
        tab.wait_text("No device is tainted", timeout_seconds=60)
        cluster.api.delete(paths.pod("train", namespace), grace_seconds=0)
        tab.wait_text("8 GPUs: 8 free")
        assert tab.evaluate("window.loadedOnce") is True
        assert tab.complaints() == []
        assert all(one.startswith(page.address) for one in tab.requested())


def test_what_is_focused_and_opened_stays_while_the_page_changes(page: Page, tab: Tab) -> None:
    add_claim(page, "train")
    tab.open(f"{page.address}node/node-a")
    tab.evaluate("document.querySelector('details summary').focus()")
    tab.press("Enter")
    assert tab.evaluate("document.querySelector('details').open") is True

    give(page, "train", "gpu-0000-1b-00-0", users=("trainer",))

    tab.wait_text("whole, 100 % held by 1 claim")
    assert tab.evaluate("document.querySelector('details').open") is True
    assert tab.evaluate("document.activeElement === document.querySelector('details summary')") is True


def test_everything_can_be_reached_and_opened_by_keyboard(page: Page, tab: Tab) -> None:
    page.api.create(waiting_pod("lonely", "missing"))
    tab.open(page.address)
    tab.wait_text("default/lonely")
    reached = []
    for _ in range(40):
        tab.press("Tab")
        reached.append(str(tab.evaluate(FOCUSED)).splitlines()[0].strip())
        assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", reached
        if reached[-1].startswith("A node-a"):
            break

    assert reached[0] == "A Skip to the content"
    assert {"A default/lonely", "INPUT q", "SELECT show", "BUTTON Filter", "A Classes"} <= {
        one.replace("SELECT all nodes", "SELECT show") for one in reached
    }
    tab.press("Enter")
    tab.wait_text("Node node-a", "h1")
    tab.press("Tab")
    tab.press("Enter")
    assert tab.evaluate("location.hash") == "#main"


def test_it_has_landmarks_headings_and_words_for_its_bars(page: Page, tab: Tab) -> None:
    tab.open(page.address)
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    seen = {
        (str(one["role"]["value"]), str(one.get("name", {}).get("value", "")))
        for one in nodes
        if not one.get("ignored")
    }

    assert {role for role, _ in seen} >= {"banner", "navigation", "main", "contentinfo", "search", "status"}
    assert {("heading", "Problems"), ("heading", "Nodes"), ("table", "")} <= seen
    assert [name for role, name in seen if role == "image" and name.startswith("GPU 0: free; GPU 1: free")]
    assert [one for one in nodes if one["role"]["value"] == "image" and not one["name"]["value"]] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground_and_nothing_is_wider_than_a_telephone(
    page: Page, tab: Tab, scheme: str
) -> None:
    page.api.create(waiting_pod("lonely", "missing"))
    tab.media(scheme)
    for path in ("", "node/node-a", "pod/default/lonely"):
        tab.size(WIDTH_OF_TELEPHONES, 800)
        tab.open(f"{page.address}{path}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTH_OF_TELEPHONES, path
        assert tab.evaluate(CONTRAST) >= 4.5, path  # WCAG 2.2, AA


def test_hostile_names_and_messages_run_nothing(page: Page, tab: Tab) -> None:
    attack = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    (*_, stored) = page.api.list_objects(f"{DRA}/resourceslices")
    stored["spec"]["devices"][0]["attributes"]["productName"] = {"string": attack[:60]}
    page.api.replace(f"{DRA}/resourceslices/{stored['metadata']['name']}", stored)
    page.api.create(waiting_pod("lonely", "missing"))
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": attack}
    page.api.patch(f"{paths.pod('lonely')}/status", {"status": {"conditions": [said]}})
    tab.open(page.address)
    tab.wait_text(attack[:60])
    tab.open(f"{page.address}pod/default/lonely")
    tab.wait_text(attack)
    assert tab.dialogs() == []
    assert tab.evaluate("document.images.length") == 0
    assert tab.complaints() == []
    assert all(one.startswith(page.address) for one in tab.requested())


CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = rgb(getComputedStyle(one).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255];
  };
  let least = 21;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest("svg, .skip")) continue;
    const both = [light(rgb(getComputedStyle(element).color)), light(ground(element))];
    const [a, b] = both.sort((x, y) => y - x);
    least = Math.min(least, (a + 0.05) / (b + 0.05));
  }
  return least;
})()"""
