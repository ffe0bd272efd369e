"""A local user of the node without rights reaches no socket and no record of the driver."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests import needs
from tests.clusters import DriverNode
from tests.flow.share_scene import shared
from tests.flow.test_mps_shares import ONE_GPU
from tests.flow.test_mps_shares import started as start_shares

pytestmark = [needs.ROOT, needs.BUSYBOX]

NOBODY = 65534

WALK = """
find . | while read -r path; do
  if [ -r "$path" ]; then echo "reads $path"; fi
  if [ -w "$path" ]; then echo "writes $path"; fi
done
"""
"""Asks the kernel as the user who runs it. Who may write to a socket may connect to it (unix(7))."""


def reached(folder: Path) -> set[str]:
    """What the user nobody may read and write in a folder, which the kubelet or the admin opened to all."""
    with _open_to_all(folder):
        found = subprocess.run(
            ["busybox", "sh", "-c", WALK],
            cwd=folder, user=NOBODY, group=NOBODY, extra_groups=(), env={"PATH": "/bin:/usr/bin"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return {line for line in found.stdout.splitlines() if line != "reads ."}


@contextmanager
def _open_to_all(folder: Path) -> Iterator[None]:
    with ExitStack() as stack:
        stack.callback(folder.chmod, folder.stat().st_mode & 0o7777)
        folder.chmod(0o755)
        yield


def test_a_local_user_reaches_no_socket_and_no_record(driver: DriverNode, namespace: str) -> None:
    with shared(driver, namespace, ONE_GPU):
        start_shares(driver, namespace, "share")

        assert reached(driver.node.plugins_dir) == set()
        assert reached(driver.node.registry_dir) == set()
        assert {line for line in reached(driver.node.cdi_dir) if not line.startswith("reads ")} == set()
