"""The roles and bindings that kube-apiserver makes at its start, for servers with RBAC.

They are read from bootstrap.json, which ``python -m envtest.embedded.access.bootstrap FOLDER`` writes from
the folder plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata of a Kubernetes source tree. Left out are
the roles of Kubernetes' own controllers, which need none in the embedded cluster.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

_FILE = Path(__file__).with_name("bootstrap.json")
_DOCUMENTS = ("cluster-roles.yaml", "cluster-role-bindings.yaml")


@cache
def bootstrap_objects() -> tuple[Object, ...]:
    """The ClusterRoles and ClusterRoleBindings; not to be changed."""
    return tuple(json.loads(_FILE.read_text()))


def main(folder: Path) -> None:
    """Write bootstrap.json, one object a line."""
    found = [one for name in _DOCUMENTS for one in yaml.safe_load((folder / name).read_text())["items"]]
    lines = (
        json.dumps({key: value for key, value in one.items() if value is not None}, separators=(",", ":"))
        for one in found
    )
    _FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
