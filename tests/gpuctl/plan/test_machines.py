"""``gpuctl plan --machines`` says what machines there are, and checks a file of one's own."""

import json
from pathlib import Path

from tests.gpuctl.plan.printed import printed

CUT = """
description: "Two A30, one of them in MIG mode"
driver_version: "580.95.05"
cuda_driver_version: "13.0"
product: {name: NVIDIA A30, device_id: 0x20b7, brand: Nvidia, architecture: Ampere,
  compute_capability: "8.0", memory_mib: 24576, mig: a30-24gb}
gpus:
  - {pci: "0000:17:00.0", minor: 0, pcie_root: "pci0000:16"}
  - {pci: "0000:65:00.0", minor: 1, pcie_root: "pci0000:64", mig_enabled: true}
"""


def test_a_file_of_ones_own_is_read_and_what_is_wrong_in_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(CUT)

    text = printed("plan", "--machines", str(file), "-o", "json")
    file.write_text(CUT.replace(", mig: a30-24gb", "").replace("minor: 0", "minr: 0"))
    wrong = printed("plan", "--machines", str(file))

    (machine,) = json.loads(text.partition("\n")[2])["items"]
    assert (machine["migEnabled"], machine["iommuGroups"]) == (["0000:65:00.0"], 2)
    assert "gpus[1].mig_enabled: needs product.mig" in wrong
    assert "gpus[0].minr: unknown field" in wrong
