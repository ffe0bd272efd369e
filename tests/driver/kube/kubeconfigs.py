"""A kubeconfig of one cluster and one user."""

import json
from pathlib import Path
from typing import Any


def written_kubeconfig(path: Path, server: str, user: dict[str, Any], /, **cluster: Any) -> Path:
    """The file at ``path``, whose cluster may say more, and another server."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": server, **cluster}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(content))
    return path
