"""The driver that says most about a function is taken, as the modules' aliases have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletplugin.devices.vfio.modules import best_module, parse_aliases, read_aliases

GRACE = "pci:v000010DEd00002342sv000010DEsd000016EBbc03sc02i00"
HOPPER = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
MODULES_ALIAS = """\
# Aliases extracted from modules themselves.
alias pci:v000010DEd*sv*sd*bc03sc02i* nvidia
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci
alias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci
alias vfio_pci:v000010DEd*sv*sd*bc03sc*i* some-gpu-vfio-pci
alias fs-9p 9p
"""


@pytest.mark.parametrize(
    ("modalias", "module"),
    [
        (GRACE, "nvgrace_gpu_vfio_pci"),
        (HOPPER, "some-gpu-vfio-pci"),
        ("pci:v00008086d00001D1Fsv00008086sd00000000bc06sc04i00", "vfio_pci"),
        (None, "vfio_pci"),
        ("nonsense", "vfio_pci"),
    ],
)
def test_the_alias_that_says_most_decides(modalias: str | None, module: str) -> None:
    assert best_module(parse_aliases(MODULES_ALIAS), modalias) == module


def test_a_kernel_that_names_no_modules_has_vfio_pci() -> None:
    assert best_module((), GRACE) == "vfio_pci"


@pytest.mark.parametrize("folder", ["lib/modules/6.8.0", "usr/lib/modules/6.8.0"])
def test_the_aliases_are_those_of_the_running_kernel(tmp_path: Path, folder: str) -> None:
    for release, text in ((folder, MODULES_ALIAS), (f"{folder}-old", "alias vfio_pci:v* old\n")):
        (tmp_path / release).mkdir(parents=True)
        (tmp_path / release / "modules.alias").write_text(text)

    assert read_aliases(tmp_path, "6.8.0") == parse_aliases(MODULES_ALIAS)


def test_a_host_without_module_files_has_no_aliases(tmp_path: Path) -> None:
    assert read_aliases(tmp_path, "6.8.0") == ()
