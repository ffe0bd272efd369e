"""Generates the stubs of all .proto files in this folder, or checks that they are up to date.

``python -m proto.generate`` writes them. ``python -m proto.generate --check`` exits with 1 if one is missing,
stale or left over. Needs grpcio-tools.

The stubs of the kubelet's API are also written into ``envtest/kubelet_api``, since ``envtest`` imports
nothing of the driver.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

PROTO_FOLDER = Path(__file__).resolve().parent
COPIES_FOLDER = PROTO_FOLDER.parent / "envtest" / "kubelet_api"
_COPIED = ("dra_health_v1", "dra_v1", "podresources_v1", "registration_v1")


def compile_into(target: Path, folder: Path = PROTO_FOLDER) -> None:
    """Compile all .proto files of ``folder`` into ``target``, below a folder of the same name.

    Raises RuntimeError if protoc refuses a file.
    """
    from grpc_tools import protoc

    # With paths from the folder above, the descriptors are registered as proto/<file>. Kubernetes calls all
    # of its files api.proto, and two files of one name cannot be in the descriptor pool of one process.
    sources = [f"{folder.name}/{path.name}" for path in sorted(folder.glob("*.proto"))]
    arguments = ["protoc", f"-I{folder.parent}", f"--python_out={target}", f"--pyi_out={target}", *sources]
    if protoc.main(arguments) != 0:
        raise RuntimeError(f"protoc refused a file of {folder}; its message stands above")


def stubs(folder: Path) -> dict[str, bytes]:
    """The generated files of a folder: name -> content."""
    return {path.name: path.read_bytes() for path in folder.glob("*_pb2.py*")}


def stale(folder: Path = PROTO_FOLDER) -> list[str]:
    """The names of stubs in ``folder`` that are missing, out of date, or without a .proto file."""
    with tempfile.TemporaryDirectory() as scratch:
        compile_into(Path(scratch), folder)
        fresh, present = stubs(Path(scratch) / folder.name), stubs(folder)
    return sorted(name for name in fresh.keys() | present.keys() if fresh.get(name) != present.get(name))


def copies(generated: Mapping[str, bytes]) -> dict[str, bytes]:
    """The stubs of the kubelet's API as ``envtest`` has them: name -> content.

    Each is in a descriptor pool of its own. The default pool takes a message once, and in the process of a
    test these, ``proto`` and the stubs of another driver may meet.
    """
    return {
        name: content.replace(b"_descriptor_pool.Default()", b"_descriptor_pool.DescriptorPool()").replace(
            b"'proto.", b"'envtest.kubelet_api."
        )
        for name, content in generated.items()
        if name.partition("_pb2")[0] in _COPIED
    }


def stale_copies(folder: Path = COPIES_FOLDER) -> list[str]:
    """The names of copies in ``folder`` that are missing, out of date, or left over."""
    fresh, present = copies(stubs(PROTO_FOLDER)), stubs(folder)
    return sorted(name for name in fresh.keys() | present.keys() if fresh.get(name) != present.get(name))


def main() -> int:
    """Write or check the stubs; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the stubs of the .proto files.")
    parser.add_argument("--check", action="store_true", help="only say which stubs are stale")
    if not parser.parse_args().check:
        compile_into(PROTO_FOLDER.parent)
        for name, content in copies(stubs(PROTO_FOLDER)).items():
            (COPIES_FOLDER / name).write_bytes(content)
        return 0
    names = [f"proto/{name}" for name in stale()] + [f"envtest/kubelet_api/{name}" for name in stale_copies()]
    for name in names:
        sys.stderr.write(f"{name} is stale: run python -m proto.generate\n")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
