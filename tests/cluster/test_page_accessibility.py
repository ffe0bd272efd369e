"""Everybody can read the page: on a telephone, by keyboard, with a screen reader, in light and in dark."""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from tests.clusters import EmbeddedApiServer
from tests.gpuctl.web.busy_cluster import BY_LIMIT, FAILING, LONG_NODE, NODE, WAITING, add_everything
from tests.gpuctl.web.pages import Page, add_class, page_of, publish
from tools.testbed.chromium import Tab, chromium

PAGES = {
    "overview": "",
    "node": f"node/{NODE}",
    "other node": f"node/{LONG_NODE}",
    "waiting pod": f"pod/{WAITING}",
    "pod by limit": f"pod/default/{BY_LIMIT}",
    "failing pod": f"pod/default/{FAILING}",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page with something of everything."""
    with EmbeddedApiServer() as api_server:
        publish(api_server, config="all-tiers")
        add_class(api_server)
        with page_of(api_server, tmp_path_factory.mktemp("page") / "config") as served:
            add_everything(served)
            yield served


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    """One browser for all tests."""
    with chromium() as opened:
        yield opened


def shown(tab: Tab, page: Page, name: str, width: int, scheme: str = "light") -> None:
    """Open a page in a window of this width; the details on it are open."""
    tab.media(scheme)
    tab.size(width, 800)
    tab.open(f"{page.address}{PAGES[name]}")
    tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")


@pytest.mark.parametrize("width", [360, 500, 800])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_or_wider_than_the_window(tab: Tab, page: Page, name: str, width: int) -> None:
    shown(tab, page, name, width)

    found = dict(tab.evaluate(LAYOUT))

    assert found == {"page": width, "wider": [], "cut": []}


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_violation(tab: Tab, page: Page, name: str, scheme: str, width: int) -> None:
    shown(tab, page, name, width, scheme)

    assert violations(tab) == []


def violations(tab: Tab) -> list[Any]:
    """The violations that axe-core finds on the open page, each with the elements that have it."""
    # Evaluated over DevTools: the page's own policy runs no script but its file.
    tab.evaluate(files("axe_core_python").joinpath("axe.min.js").read_text() + "; 1")
    checked, found = tab.evaluate(AXE)
    assert checked > 20
    return list(found)


def test_cards_of_a_narrow_window_are_still_tables_for_screen_readers(tab: Tab, page: Page) -> None:
    shown(tab, page, "overview", 360)

    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]

    seen = {(one["role"]["value"], one.get("name", {}).get("value")) for one in nodes if not one["ignored"]}
    assert {("columnheader", "Why it waits"), ("rowheader", WAITING)} <= seen
    assert {"table", "row", "cell"} <= {role for role, _ in seen}


def test_a_pod_that_waits_looks_other_than_one_that_fails(tab: Tab, page: Page) -> None:
    colors = []
    for name, verdict in (("failing pod", "fails"), ("overview", "waits")):
        shown(tab, page, name, 1280)
        colors.append(tab.evaluate(COLOR.replace("VERDICT", verdict)))

    fails, waits = colors

    assert waits != fails
    assert tab.text("p:has(> .verdict.waits)").strip() == "waits"  # not "waits it waits"


LAYOUT = """(() => {
  const wide = document.documentElement.clientWidth, wider = [], cut = [];
  for (const one of document.body.querySelectorAll("*")) {
    if (one.closest(".skip, thead, svg *") || !one.checkVisibility()) continue;
    const {left, right} = one.getBoundingClientRect(), style = getComputedStyle(one);
    const words = `${one.nodeName} ${one.textContent.trim().slice(0, 40)}`;
    if (left < -0.5 || right > wide + 0.5) wider.push(words);
    const held = one.scrollWidth > one.clientWidth + 1 && style.display !== "inline";
    if (held && !one.closest("svg, input, select")) cut.push(words);
  }
  return {page: document.documentElement.scrollWidth, wider, cut};
})()"""
"""The width of the page, elements that are wider than the window, and elements that their content leaves."""

AXE = """axe.run().then((found) => [found.passes.length, found.violations.map(
  (one) => [one.id, one.help, one.nodes.map((node) => node.html.slice(0, 160))]
)])"""
"""How many rules hold, and the violations of the others."""

COLOR = "getComputedStyle(document.querySelector('.verdict.VERDICT')).color"
