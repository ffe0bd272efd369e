"""The driver's containers are known by the program that they run."""

from typing import Any

import pytest

from gpuctl.doctor.outside.programs import program_of


@pytest.mark.parametrize(
    ("container", "program"),
    [
        ({"command": ["gpu-dra-controller"], "args": ["--node-name=a"]}, "controller"),
        ({"command": ["/usr/local/bin/gpu-dra-mps"]}, "mps"),
        ({"args": ["gpu-dra-kubeletplugin"]}, "kubeletplugin"),
        ({"command": ["python3", "-m", "controller.webhook"]}, "webhook"),
        ({"command": ["gpu-dra-preemptor", "--dry-run"]}, "preemptor"),
        ({"command": ["python3", "-m", "http.server"]}, None),
        ({"command": ["python3", "-m"]}, None),
        ({"command": ["sh", "-c", "gpu-dra-controller"]}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_program_is_what_the_container_starts(container: dict[str, Any], program: str | None) -> None:
    assert program_of(container) == program
