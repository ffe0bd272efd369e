"""No decision of a node depends on its wall clock, which may be wrong or jump; its readers are listed."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READERS = {
    "driver/process/stamp.py": "compares with times of files, which the same clock gave",
    "driver/kube/client.py": "before the API server has told its own",
    "controller/observe/licenses.py": "how long the license of a vGPU is valid",
    "controller/webhook/certificate.py": "how long the certificate is valid",
    "kubeletplugin/claims/journal/locks.py": "a time that differs from the one before, whatever it is",
    "kubeletplugin/reports/health_check.py": "the kubelet of the same node compares it with its own clock",
}
"""The modules of the processes that read the wall clock, and what for."""


def reads_wall_clock(path: Path) -> bool:
    """Whether the module names time.time, time.time_ns or datetime.now."""
    names = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return not names.isdisjoint({"time.time", "time.time_ns", "datetime.now", "datetime.utcnow"})


@pytest.mark.parametrize("package", ["driver", "controller", "kubeletplugin"])
def test_only_the_listed_modules_read_the_wall_clock(package: str) -> None:
    found = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py") if reads_wall_clock(path)}

    assert found == {name for name in READERS if name.startswith(f"{package}/")}
