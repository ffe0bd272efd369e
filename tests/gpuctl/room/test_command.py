"""``gpuctl room`` reads what it needs of a cluster, and tells people and scripts the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from driver.errors import ConfigError
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from tests.gpuctl.documents import read_document
from tests.gpuctl.explain.served import Served
from tests.gpuctl.explain.site import WHOLE, Site, claim_spec


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with EmbeddedApiServer() as server:
        found = Served(server, tmp_path)
        site = Site("node-a", "node-b")
        site.runs("batch", "node-a", claim_spec(shares=3))
        site.runs("note", "node-b", claim_spec(shares=1), movable=False, priority=100)
        found.load(site, site.waits("serve", claim_spec(WHOLE), priority=10))
        yield found


def test_a_pod_that_waits_is_told_who_would_have_to_end(served: Served) -> None:
    told = served.run("serve", "-n", "team")

    assert told.exit_code == 3, told.output
    assert told.stdout.startswith("pod team/serve: it waits, and would fit if pods ended\n")
    rows = [line.split()[:4] for line in told.stdout.splitlines()[2:]]
    assert rows[0] == ["lower", "priority", "node-a", "team/batch"]


def test_scripts_are_told_the_same(served: Served) -> None:
    told = read_document(served.run("serve", "-n", "team", "-o", "json").stdout, "Room")

    assert told["verdict"] == "room"
    rooms = {one["policy"]: [room["node"] for room in one["rooms"]] for one in told["policies"]}
    assert rooms == {"lower-priority": ["node-a"], "movable": ["node-a"], "any": ["node-a", "node-b"]}


def test_a_pod_with_a_node_needs_no_room(served: Served) -> None:
    told = served.run("batch", "-n", "team")

    assert (told.exit_code, told.stdout) == (
        0,
        "pod team/batch: it is on node-a already, and needs no room\n",
    )


def test_a_pod_that_is_not_there_is_an_error(served: Served) -> None:
    told = served.run("nobody")

    assert isinstance(told.exception, ConfigError)
    assert "there is no pod default/nobody" in str(told.exception)


def test_what_may_not_be_read_is_named(served: Served) -> None:
    served.server.fail("list", "poddisruptionbudgets", code=403)

    told = served.run("serve", "-n", "team")

    assert "not considered, because this user may not read them: poddisruptionbudgets" in told.stdout


def test_a_manifest_is_answered_as_a_pod(served: Served) -> None:
    file = served.folder / "pod.yaml"
    file.write_text(
        "kind: Pod\nmetadata: {name: later}\n"
        "spec:\n  priority: 10\n  containers: [{name: main, image: x}]\n"
        "  resourceClaims: [{name: gpu, resourceClaimName: mine}]\n---\n"
        "kind: ResourceClaim\nmetadata: {name: mine}\n"
        "spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}\n"
    )

    told = read_document(served.run("--for", str(file), "-n", "team", "-o", "json").stdout, "Room")

    assert (told["name"], told["verdict"]) == ("later", "room")


def test_the_moves_are_shown_without_doing_them(served: Served) -> None:
    before = served.server.count("create", "pods")

    shown = served.run("--defragment")
    told = read_document(served.run("--defragment", "-o", "json").stdout, "Defragmentation")

    assert (shown.exit_code, shown.stdout.splitlines()[0]) == (0, "1 move would free 1 whole GPU")
    assert [one["node"] for one in told["steps"]] == ["node-a"]
    assert served.server.count("create", "pods") == before


def test_with_yes_and_nothing_to_gain_it_says_so(served: Served) -> None:
    told = served.run("--defragment", "--node", "node-b", "--yes")
    data = served.run("--defragment", "--node", "node-b", "--yes", "-o", "json")

    assert (told.exit_code, told.stdout) == (
        0,
        "0 moved, 0 more free (whole GPU); stopped: nothing is left to gain\n",
    )
    assert read_document(data.stdout, "Defragmentation")["complete"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "name a pod"),
        ("serve --for x.yaml", "name a pod"),
        ("serve --defragment", "leave POD out"),
        ("serve --yes", "need --defragment"),
        ("serve --node node-a", "need --defragment"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: str, message: str) -> None:
    told = CliRunner().invoke(commands, ["room", *arguments.split()])

    assert told.exit_code == 2
    assert message in told.output


@pytest.mark.parametrize(("flag", "name"), [("--node", "node-z"), ("--for", "mig-9g")])
def test_a_name_that_is_not_there_is_an_error(served: Served, flag: str, name: str) -> None:
    told = served.run("--defragment", flag, name)

    assert isinstance(told.exception, ConfigError)
    assert name in str(told.exception)
