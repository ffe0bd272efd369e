"""The product names behind the PCI device ids by which other tools choose GPUs, where they are certain.

NVML tells the name, which rules of a node configuration ask for; the ids are those of the GPUs that know MIG
(table of the open kernel modules: a device id whose boards have several names has all of them here).
"""

from __future__ import annotations

NVIDIA_VENDOR = 0x10DE

PRODUCTS: dict[int, tuple[str, ...]] = {
    0x20B0: ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PG509-200"),
    0x20B1: ("NVIDIA A100-PCIE-40GB",),
    0x20B2: ("NVIDIA A100-SXM4-80GB", "NVIDIA PG509-210"),
    0x20B5: ("NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-80GB"),
    0x20B6: ("NVIDIA PG506-230", "NVIDIA PG506-232"),
    0x20B7: ("NVIDIA A30",),
    0x20BD: ("NVIDIA A800-SXM4-40GB",),
    0x20F1: ("NVIDIA A100-PCIE-40GB",),
    0x20F3: ("NVIDIA A800-SXM4-80GB",),
    0x20F5: ("NVIDIA A800 80GB PCIe",),
    0x20F6: ("NVIDIA A800 40GB Active",),
    0x2321: ("NVIDIA H100 NVL",),
    0x2322: ("NVIDIA H800 PCIe",),
    0x2324: ("NVIDIA H800",),
    0x2329: ("NVIDIA H20",),
    0x2330: ("NVIDIA H100 80GB HBM3",),
    0x2331: ("NVIDIA H100 PCIe",),
    0x2335: ("NVIDIA H200",),
    0x2339: ("NVIDIA H100",),
    0x233A: ("NVIDIA H800 NVL",),
    0x233B: ("NVIDIA H200 NVL",),
    0x2342: ("NVIDIA GH200 120GB", "NVIDIA GH200 480GB"),
    0x2348: ("NVIDIA GH200 144G HBM3e",),
    0x2901: ("NVIDIA B200",),
    0x2941: ("NVIDIA GB200",),
    0x2BB1: ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition",),
    0x2BB4: ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",),
    0x2BB5: ("NVIDIA RTX PRO 6000 Blackwell Server Edition",),
    0x3182: ("NVIDIA B300 SXM6 AC",),
    0x31C2: ("NVIDIA GB300",),
}
"""Device id -> product names as NVML tells them, over driver versions."""
