"""What ``gpuctl import`` prints of configurations of other tools, and what it says about them."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.clusters import commands, error_text
from tests.gpuctl.approved import approve
from tests.gpus import DriverError

MIG_PARTED = """\
version: v1
mig-configs:
  all-disabled:
    - {devices: all, mig-enabled: false}
  all-enabled:
    - {devices: all, mig-enabled: true, mig-devices: {}}
  all-1g.10gb:
    - device-filter: ["0x233010DE", "0x20B210de"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 7}
    - {device-filter: "0x20B010DE", devices: all, mig-enabled: true, mig-devices: {1g.10gb: 4}}
  custom:
    - {devices: [0, 1], mig-enabled: false}
    - devices: [2]
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3c.3g.40gb": 1, "1g.20gb": 0}
    - {devices: [3, 4, 5, 6, 7], mig-enabled: true, mig-devices: {1g.10gb+me: 1, 3g.40gb: 1}}
  the-last-one-decides:
    - {devices: all, mig-enabled: false}
    - {devices: [4, 5], mig-enabled: true, mig-devices: {3g.40gb: 2}}
    - {devices: [5], mig-enabled: true, mig-devices: {7g.80gb: 1}}
"""
LOSING = """\
version: v1
mig-configs:
  odd:
  - {devices: [0], mig-enabled: true, mig-devices: {"1c.3g.40gb": 3}}
  - {devices: [1], mig-enabled: true, mig-devices: {"1g.10gb+me,new": 1}}
  - {devices: [2], device-filter: ["0x999910DE"], mig-enabled: false}
  - {devices: [3], device-filter: ["0x999910DE", "0x233010DE"], mig-enabled: false}
  - {devices: [4], device-filter: "0x233010DE:0x16C110DE", mig-enabled: false}
"""
GOOD = "{devices: all, mig-enabled: false}"
WRONG_ENTRIES = (
    "mig-enabled: false",
    "devices: all",
    "devices: some, mig-enabled: false",
    "devices: [], mig-enabled: false",
    "devices: [-1], mig-enabled: false",
    "devices: all, mig-enabled: 1",
    "devices: all, mig-enabled: true",
    "devices: all, mig-enabled: true, mig-devices: [1g.10gb]",
    "devices: all, mig-enabled: false, mig-devices: {1g.10gb: 1}",
    "devices: all, mig-enabled: true, mig-devices: {1g: 1}",
    "devices: all, mig-enabled: true, mig-devices: {1g.10gb: 0}",
    "devices: all, mig-enabled: true, mig-devices: {1g.10gb: 17}",
    "devices: all, mig-enabled: true, mig-devices: {1g.10gb: 9, 2g.20gb: 9}",
    "devices: all, mig-enabled: false, device-filter: 0x233010DE",
    'devices: all, mig-enabled: false, device-filter: "H100"',
    "devices: all, mig-enabled: false, mode: x",
)
WRONG = (
    *(f"version: v1\nmig-configs: {{a: [{GOOD}, {{{entry}}}]}}" for entry in WRONG_ENTRIES),
    "[]",
    f"version: v2\nmig-configs: {{a: [{GOOD}]}}",
    "version: v1",
    f"version: v1\nmore: 1\nmig-configs: {{a: [{GOOD}]}}",
    "version: v1\nmig-configs:\n  a: [{}]\n  a: [{}]",
    f"version: v1\nmig-configs: {{../a: [{GOOD}]}}",
    "version: v9\nmig-configs: {a: [{devices: x, mig-enabled: y}], b: []}",
    "kind: ConfigMap\ndata: {other.yaml: x}",
    "kind: ConfigMap\ndata: {config.yaml: 'version: v2'}",
    "kind: Pod\nmetadata: {name: mine}",
)

PLUGIN = """\
version: v1
flags:
  migStrategy: "mixed"
  failOnInitError: true
  nvidiaDriverRoot: "/"
  plugin: {passDeviceSpecs: false, deviceListStrategy: "envvar", deviceIDStrategy: "uuid"}
  gfd: {oneshot: false, noTimestamp: false, sleepInterval: 60s}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: false
    resources:
      - name: nvidia.com/gpu
        replicas: 4
      - {name: mig-1g.10gb, replicas: 2}
      - {name: nvidia.com/mig-1g.10gb.me, replicas: 6}
"""
SINGLE = """\
flags: {migStrategy: single}
sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: gpu, replicas: 2}]}}
"""
NAMED = """\
sharing:
  mps:
    failRequestsGreaterThanOne: false
    resources:
    - {name: gpu, replicas: 2, rename: heavy, devices: [0, "GPU-46f0a2e8-743c-5a04-880a-b4099fd6742d"]}
    - {name: gpu, replicas: 60, rename: light, devices: ["3", "0:1"]}
"""
TIERS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: device-plugin-config, namespace: gpu-operator}
data:
  training: |
    version: v1
    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}
  development: |
    version: v1
    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 8}]}}
  tesla-t4.yaml: |-
    sharing: {mps: {resources: [{name: gpu, replicas: 8}]}}
  empty: ""
"""
NOT_HERE = """\
flags:
  failOnInitError: false
  nvidiaDriverRoot: /run/nvidia/driver
  gdsEnabled: true
  plugin: {deviceListStrategy: [volume-mounts], sharedDevicesAllocationPolicy: distributed}
  gfd: {oneshot: true}
resources: {gpus: [{pattern: '*A100*', name: a100}]}
imex: {channelIDs: [0]}
sharing:
  mps: {resources: [{name: mig-1g.10gb, replicas: 2}, {name: tpu, replicas: 2}, {name: gpu, replicas: 3}]}
  timeSlicing: {resources: [{name: gpu, replicas: 3}]}
"""


def shared(entry: str, more: str = "") -> str:
    return f"sharing: {{timeSlicing: {{resources: [{{{entry}}}]}}{more}}}"


MANY_WRONG = "name: nvidia.com/gpu, replicas: 0}, {replicas: many"


WRONG_OF_PLUGIN = (
    "flags: {migStrategy: both, verbose: true}\n" + shared(MANY_WRONG, ", other: {}"),
    shared("name: nvidia.com/GPU, replicas: 2"),
    shared(f"name: {'g' * 60}, replicas: 2"),
    shared("name: gpu, replicas: 2, rename: example.com/gpu"),
    shared("name: gpu, replicas: 2, devices: some"),
    shared("name: gpu, replicas: 2, devices: ['0\"] || true']"),
    shared("name: gpu, replicas: 2}, {name: gpu, replicas: 3"),
    shared("name: gpu, replicas: 2, rename: a, devices: ['0']}, {name: gpu, replicas: 2, rename: b"),
    "version: v2",
    "[]",
    "kind: ConfigMap",
    "kind: ConfigMap\n---\nkind: ConfigMap",
    "kind: ConfigMap\ndata: {../up: ''}",
    "kind: ConfigMap\ndata: {a: '['}",
    "kind: ConfigMap\ndata: {a: 'version: v2'}",
    "kind: ConfigMap\ndata: {a: '', a.yaml: ''}",
    "kind: Pod\nmetadata: {name: mine}",
)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(tool: str, text: str, *more: str) -> Result:
    """Import a file of a tool."""
    file = Path("config.yaml")
    file.write_text(text)
    return CliRunner().invoke(commands, ["import", tool, file.name, *more])


def error(tool: str, text: str) -> str:
    """Why a file of a tool is refused; not a letter is printed of it."""
    refused = ran(tool, text)
    if not isinstance(refused.exception, DriverError):
        return f"is accepted, with exit code {refused.exit_code}"
    assert refused.output == ""
    return error_text(refused.exception)


OPERATOR = {"migManager": {"config": {"data": {"config.yaml": LOSING, "hooks.yaml": "version: v1"}}}}


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        ("mig-parted", ("mig-parted", MIG_PARTED)),
        ("mig-parted-static", ("mig-parted", MIG_PARTED, "--mode", "static")),
        ("mig-parted-loses", ("mig-parted", LOSING)),
        ("mig-parted-chart-values", ("mig-parted", yaml.safe_dump(OPERATOR), "--mode", "static")),
        ("device-plugin", ("device-plugin", PLUGIN)),
        ("device-plugin-single", ("device-plugin", SINGLE)),
        ("device-plugin-named-gpus", ("device-plugin", NAMED)),
        ("device-plugin-config-map", ("device-plugin", TIERS)),
        ("device-plugin-loses", ("device-plugin", NOT_HERE)),
    ],
)
def test_a_configuration_is_imported(situation: str, words: tuple[str, ...]) -> None:
    printed = ran(*words)
    end = f"exit code {printed.exit_code}\n"
    approve(f"import/{situation}", "\n".join((printed.stdout, *printed.stderr.splitlines(), end)))


@pytest.mark.parametrize("tool", ["mig-parted", "device-plugin"])
def test_a_wrong_file_is_refused_with_all_that_is_wrong(tool: str) -> None:
    texts = WRONG if tool == "mig-parted" else WRONG_OF_PLUGIN
    # A line for each text, and one for its error.
    lines = [line for text in texts for line in (" ".join(text.split()), f"  {error(tool, text)}")]
    approve(f"import/{tool}-wrong", "\n".join([*lines, ""]))


TIER = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}"


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "List", "items": [{"kind": "Service"}, {"kind": "ConfigMap", "data": {"a.yaml": TIER}}]},
        {"image": {}, "config": {"map": {"a.yaml": TIER}}},
        {"devicePlugin": {"config": {"data": {"a.yaml": TIER}}}},
    ],
)
def test_a_configuration_is_found_in_what_it_came_in(document: object) -> None:
    wrapped, alone = ran("device-plugin", yaml.safe_dump(document)), ran("device-plugin", TIER)

    assert (wrapped.exit_code, wrapped.stderr) == (0, "")
    assert list(yaml.safe_load_all(wrapped.stdout)) == list(yaml.safe_load_all(alone.stdout))


@pytest.mark.parametrize(
    ("tool", "text", "files"),
    [
        ("mig-parted", LOSING, ["odd.yaml"]),
        ("device-plugin", TIER, ["deviceclasses.yaml", "node-config/config.yaml"]),
    ],
)
def test_files_are_written_all_or_none(tool: str, text: str, files: list[str]) -> None:
    assert ran(tool, text, "--to", "out").stdout.splitlines() == [f"out/{file}" for file in reversed(files)]
    assert sorted(str(file.relative_to("out")) for file in Path("out").rglob("*.yaml")) == files
    for file in files[1:]:
        Path("out", file).unlink()
    refused = ran(tool, text, "--to", "out")
    assert f"out/{files[0]} already exists" in str(refused.exception)
    assert [str(file.relative_to("out")) for file in Path("out").rglob("*.yaml")] == files[:1]
