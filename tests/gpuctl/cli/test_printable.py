"""What tenants and nodes write is shown on an admin's terminal, commands nothing, and ends no command."""

import copy
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from gpuctl.cli.output import say
from tests.clusters import EmbeddedApiServer, Object, commands, error_text, plan_node
from tests.gpuctl.cli.kubeconfigs import BEARER, kubeconfig
from tests.gpus import DriverError
from tools.docs.site.places import ROOT

EVIL = "\x1b[2J[/b][link=https://evil.example]free[/link]\u202e\x9b"
UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": EVIL}
NODE, DRA = "node-a", "/apis/resource.k8s.io/v1"


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def commanding(text: str) -> set[str]:
    """The characters of a text that a terminal would not just show, but for what sets colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs") and one not in "\n\t"}


def test_a_line_of_several_stays_so() -> None:
    with redirect_stderr(io.StringIO()) as err:
        say(f"one\ntwo {EVIL}", err=True)

    assert err.getvalue() == "one\ntwo ?[2J[/b][link=https://evil.example]free[/link]??\n"


def evil_slices() -> list[Object]:
    """The slices of a node that says evil in every text that it may choose."""
    found = copy.deepcopy(list(plan_node("a30-quad", NODE, None).slices))
    for item in found:
        for device in item["spec"].get("devices", ()):
            for name, value in device["attributes"].items():
                if "string" in value and name not in ("type", "resource.kubernetes.io/pciBusID"):
                    device["attributes"][name] = {"string": EVIL}
            device["taints"] = [{"key": "gpu.nvidia.com/lost", "value": "x", "effect": "NoSchedule"}]
    return found


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("config")
    with EmbeddedApiServer() as server:
        server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        server.create("/api/v1/nodes", {"metadata": {"name": NODE, "annotations": {"said": EVIL}}})
        for item in evil_slices():
            server.create(f"{DRA}/resourceslices", item)
        selector = {"cel": {"expression": f"device.attributes['gpu.nvidia.com'].brand == {json.dumps(EVIL)}"}}
        lacking = {"cel": {"expression": f"device.attributes['gpu.nvidia.com'][{json.dumps(EVIL)}] == 1"}}
        for name, chosen in (("gpu", selector), ("lacking", lacking)):
            metadata = {"name": name}
            server.create(f"{DRA}/deviceclasses", {"metadata": metadata, "spec": {"selectors": [chosen]}})
            exactly = {"deviceClassName": name, "count": 9, "selectors": [chosen]}
            spec: Object = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
            server.create(f"{DRA}/namespaces/team/resourceclaims", {"metadata": metadata, "spec": spec})
            asks = [{"name": "gpus", "resourceClaimName": name}]
            spec = {"containers": [{"name": "main", "image": EVIL}], "resourceClaims": asks}
            pod = {"metadata": {**metadata, "annotations": {"said": EVIL}}, "spec": spec}
            server.create("/api/v1/namespaces/team/pods", {**pod, "status": {"conditions": [UNPLACED]}})
        server.gate.admin_bearer = BEARER
        yield kubeconfig(folder / "config", server.url, here="team")


COMMANDS = (
    ["status"],
    ["status", "-o", "wide"],
    ["describe", "node", NODE],
    ["describe", "gpu", f"{NODE}/0"],
    ["describe", "claim", "gpu"],
    ["plan", "--topology", NODE],
    ["top"],
    ["doctor"],
    ["doctor", NODE],
    *(["explain", kind, name] for kind in ("claim", "pod") for name in ("gpu", "lacking")),
    ["heal", NODE, "0"],
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("file", [io.StringIO, Terminal])
def test_no_command_hands_on_what_would_command_a_terminal(
    config: Path, words: list[str], file: type[io.StringIO]
) -> None:
    with redirect_stdout(file()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            commands.main([*words, "--kubeconfig", str(config)], standalone_mode=False)
        except DriverError as error:  # as the program itself tells it
            say(f"gpuctl: {error_text(error)}", err=True)

    assert out.getvalue() + err.getvalue()
    assert commanding(out.getvalue() + err.getvalue()) == set()


ITS_OWN_WORDS = {
    "gpuctl/demo",  # a cluster of its own
    "gpuctl/completion/command.py",  # a script
    "gpuctl/kubectl_completion.py",
    "gpuctl/gather/command.py",  # an archive
    "gpuctl/heal/run.py",  # JSON
    "gpuctl/importing/command.py",  # YAML
}


def test_whatever_is_not_our_own_goes_through_the_one_place_that_prints() -> None:
    printing = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "gpuctl").rglob("*.py")
        if re.search(r"\bclick\.echo\(|\bConsole\(|^\s+print\(", path.read_text(), re.MULTILINE)
    }

    assert {one for one in printing if not one.startswith(tuple(ITS_OWN_WORDS))} == {"gpuctl/cli/output.py"}
