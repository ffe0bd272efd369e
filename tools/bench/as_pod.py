"""Starts a command of the driver as in a pod: ``python -m tools.bench.as_pod controller --kubeconfig FILE``.

In a pod, a process has files with a token and the cluster's authority, and no kubeconfig, which takes 20 MiB
more to read. Here the kubeconfig of a test cluster becomes such files, next to it.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

from driver.kube import credentials

AS_POD = ("tools.bench.as_pod",)


def main() -> None:
    """Run the command of the package that the first argument names, with the other arguments."""
    package, *arguments = sys.argv[1:]
    place = arguments.index("--kubeconfig")
    kubeconfig = Path(arguments[place + 1])
    del arguments[place : place + 2]
    content = json.loads(kubeconfig.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    folder = kubeconfig.with_suffix(".account")
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "token").write_text(user["token"])
    (folder / "ca.crt").write_bytes(Path(cluster["certificate-authority"]).read_bytes())
    server = urlsplit(cluster["server"])
    os.environ |= {
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port),
    }
    vars(credentials)["SERVICE_ACCOUNT"] = folder
    import_module(f"{package}.__main__").main(arguments, prog_name=f"python -m {package}")


if __name__ == "__main__":
    main()
