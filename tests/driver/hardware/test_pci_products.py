"""What a device id tells is what NVML tells of the same GPU."""

from __future__ import annotations

import pytest

from driver.hardware.pci import PRODUCTS, product_name
from fakegpu.machine.spec import known_machines, load_machine


@pytest.mark.parametrize("machine", known_machines())
def test_the_table_agrees_with_the_machines(machine: str) -> None:
    product = load_machine(machine).product
    if product.virtualization != "vgpu":  # a guest is named after its vGPU
        assert product.name in PRODUCTS.get(product.device_id, (product.name,))


def test_a_name_is_told_where_it_is_certain() -> None:
    assert product_name(0x26B9) == "NVIDIA L40S"
    assert product_name(0x20B0) is None
    assert product_name(0x0001) is None
