"""KubeVirt's own virt-launcher code, as a judge of what containers of virtual machines find."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.clusters import go_programs


class Refused(Exception):
    """KubeVirt does not take the virtual machine, or finds no device of it; the message is KubeVirt's."""


def host_devices(machine: Path, files: Mapping[str, bytes], folder: Path) -> dict[str, str]:
    """What libvirt would be told to hand over: PCI address or mdev UUID, by the alias of the device.

    ``machine`` is a manifest that has one VirtualMachineInstance alone; ``files`` are metadata files by
    their paths below the folder that containers know, and are laid below ``folder``. Raises Refused.
    """
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    program = go_programs("kubevirt") / "virt-launcher-devices"
    done = subprocess.run([program, machine, folder], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Refused(done.stderr)
    return {one["Alias"]["Name"]: _source(one) for one in json.loads(done.stdout) or ()}


def _source(device: Mapping[str, Any]) -> str:
    address = device["Source"]["Address"]
    if device["Type"] == "mdev":
        return str(address["UUID"])
    assert (device["Type"], device["Managed"]) == ("pci", "no")
    domain, bus, slot, function = (int(address[part], 16) for part in ("Domain", "Bus", "Slot", "Function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
