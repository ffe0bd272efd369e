"""The product names behind PCI device ids, where they are certain: for GPUs that NVML does not tell of.

The ids are those of data centre GPUs (table of the open kernel modules: a device id whose boards have several
names has all of them here).
"""

from __future__ import annotations

PRODUCTS: dict[int, tuple[str, ...]] = {
    0x1B38: ("Tesla P40",),
    0x1BB3: ("Tesla P4",),
    0x1DB1: ("Tesla V100-SXM2-16GB",),
    0x1DB4: ("Tesla V100-PCIE-16GB",),
    0x1DB5: ("Tesla V100-SXM2-32GB",),
    0x1DB6: ("Tesla V100-PCIE-32GB",),
    0x1DB8: ("Tesla V100-SXM3-32GB",),
    0x1EB8: ("Tesla T4",),
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
    0x2235: ("NVIDIA A40",),
    0x2236: ("NVIDIA A10",),
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
    0x25B6: ("NVIDIA A2", "NVIDIA A16"),
    0x26B5: ("NVIDIA L40",),
    0x26B9: ("NVIDIA L40S",),
    0x26BA: ("NVIDIA L20",),
    0x27B8: ("NVIDIA L4",),
    0x2901: ("NVIDIA B200",),
    0x2941: ("NVIDIA GB200",),
    0x2BB1: ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition",),
    0x2BB4: ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",),
    0x2BB5: ("NVIDIA RTX PRO 6000 Blackwell Server Edition",),
    0x3182: ("NVIDIA B300 SXM6 AC",),
    0x31C2: ("NVIDIA GB300",),
}
"""Device id -> product names as NVML tells them, over driver versions."""


def product_name(device_id: int) -> str | None:
    """What NVML would call a GPU of this device id; None where the id alone does not tell."""
    names = PRODUCTS.get(device_id, ())
    return names[0] if len(names) == 1 else None
