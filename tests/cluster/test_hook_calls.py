"""What a call does that needs a loaded kernel driver is seen on a /proc of its own, as our spec makes it."""

import json
import subprocess
from pathlib import Path

from fakegpu.driver_files.layouts import LAYOUTS
from tests.cluster.cdi_generator import FakeNode
from tests.clusters import go_programs
from tests.plugin import NO_NODES

PARAMETERS = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: {modify}\nDeviceFileMode: 438\n"
_IN_NAMESPACE = 'mount --bind "$0" /proc/driver && "$1" "$2" && cat "$3"'


def test_no_program_of_a_container_makes_device_nodes(tmp_path: Path) -> None:
    calls = FakeNode.build(tmp_path / "node", LAYOUTS[0]).ours()["containerEdits"]["hooks"]
    (call,) = (call for call in calls if call["args"][1] == NO_NODES)
    program = go_programs("container-toolkit") / call["args"][0]
    host, bundle = tmp_path / "driver", tmp_path / "bundle"
    inside = bundle / "rootfs/proc/driver/nvidia/params"
    for file in (host / "nvidia/params", inside):
        file.parent.mkdir(parents=True)
        file.write_text(PARAMETERS.format(modify=1))
    (bundle / "config.json").write_text(json.dumps({"ociVersion": "1.0.0", "root": {"path": "rootfs"}}))

    said = subprocess.run(
        ["unshare", "-m", "sh", "-c", _IN_NAMESPACE, str(host), str(program), *call["args"][1:], str(inside)],
        input=json.dumps({"ociVersion": "1.0.0", "id": "one", "bundle": str(bundle)}),
        check=True, capture_output=True, text=True,
    )  # fmt: skip

    assert said.stdout == PARAMETERS.format(modify=0), (
        "the driver's library makes no node where it reads this"
    )
    assert inside.read_text() == PARAMETERS.format(modify=1), "nothing is left outside of the container"
