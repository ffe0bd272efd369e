"""NVML's numbers of brands and architectures, as words."""

from __future__ import annotations

BRANDS: dict[int, str] = {
    1: "Quadro", 2: "Tesla", 3: "NVS", 4: "Grid", 5: "GeForce", 6: "Titan", 7: "NvidiaVApps",
    8: "NvidiaVPC", 9: "NvidiaVCS", 10: "NvidiaVWS", 11: "NvidiaCloudGaming", 12: "QuadroRTX",
    13: "NvidiaRTX", 14: "Nvidia", 15: "GeForceRTX", 16: "TitanRTX",
}  # fmt: skip
"""nvmlBrandType_t -> the text that claims written for NVIDIA's own driver select on."""

ARCHITECTURES: dict[int, str] = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere",
    8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell", 13: "Rubin",
}  # fmt: skip
"""nvmlDeviceArchitecture_t -> the text that claims written for NVIDIA's own driver select on."""
