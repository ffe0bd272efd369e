"""Works out the command of a container and its environment. Go: makeEnvironmentVariables in pkg/kubelet.

Left out are variables from ConfigMaps, Secrets, files, resources and Services, and the files of volumes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
Object = dict[str, Any]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENTRY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
# Two dollars stand for one (Go: third_party/forked/golang/expansion).
_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


@dataclass(frozen=True, slots=True)
class Command:
    """The command of a container and its environment without CDI's; no words mean the image's command."""

    words: tuple[str, ...]
    env: Mapping[str, str]


def command_of(pod: Object, container: Json) -> Command:
    """The command of a pod's container."""
    given: dict[str, str] = {}
    for one in container.get("env") or ():
        if "valueFrom" in one:
            value = _field(pod, (one["valueFrom"].get("fieldRef") or {}).get("fieldPath", ""))
        else:
            value = _expanded(one.get("value") or "", given)
        if value is not None:
            given[one["name"]] = value
    env = {"PATH": PATH, "HOSTNAME": pod["metadata"]["name"], "HOME": "/root", **given}
    # Arguments without a command go to the program of the image, which is unknown here.
    words = [*container["command"], *(container.get("args") or ())] if container.get("command") else []
    return Command(tuple(_expanded(word, given) for word in words), env)


def _field(pod: Object, path: str) -> str | None:
    """A field of the pod; None for any that is not known here."""
    matched = _ENTRY.fullmatch(path)
    if matched is not None:
        return str((pod["metadata"].get(matched[1]) or {}).get(matched[2], ""))
    part, _, name = path.partition(".")
    if (part, name) in (("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid")):
        return str(pod["metadata"][name])
    return str(pod["spec"].get("nodeName", "")) if path == "spec.nodeName" else None


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """A text in which Kubernetes puts variables of the container for ``$(NAME)``."""
    return _REFERENCE.sub(lambda found: found[1] or env.get(found[2], found[0]), text)
