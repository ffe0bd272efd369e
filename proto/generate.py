"""Generates the stubs of all .proto files in this folder, or checks that they are up to date.

``python -m proto.generate`` writes them. ``python -m proto.generate --check`` exits with 1 if one is missing,
stale or left over. Needs grpcio-tools.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

PROTO_FOLDER = Path(__file__).resolve().parent


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


def main() -> int:
    """Write or check the stubs; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the stubs of the .proto files.")
    parser.add_argument("--check", action="store_true", help="only say which stubs are stale")
    if not parser.parse_args().check:
        compile_into(PROTO_FOLDER.parent)
        return 0
    names = stale()
    for name in names:
        sys.stderr.write(f"proto/{name} is stale: run python -m proto.generate\n")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
