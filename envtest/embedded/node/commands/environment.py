"""Works out the command of a container, its environment and its files, from ConfigMaps and Secrets, too.

Go: makeEnvironmentVariables in pkg/kubelet/kubelet_pods.go, MakePayload in pkg/volume/configmap and
pkg/volume/secret. Left out are resourceFieldRef, fileKeyRef and the variables of Services. Files are worked
out when a container starts, and do not change while it runs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

Json = Mapping[str, Any]
Object = dict[str, Any]

Find = Callable[[str, str], "Json | None"]
"""Finds a ``configmap`` or a ``secret`` of the pod's namespace by its name, None where it is missing."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMES = {"configmap": "ConfigMap", "secret": "Secret"}
_NO_KEY = {
    "configmap": "configmap references non-existent config key",
    "secret": "references non-existent secret key",
}
_ENTRY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
# Two dollars stand for one (Go: third_party/forked/golang/expansion).
_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


class ConfigMissing(Exception):
    """What a container needs is missing; the message is in the kubelet's words."""


class VolumeMissing(ConfigMissing):
    """What a volume needs is missing; the message names the volume."""


@dataclass(frozen=True, slots=True)
class Command:
    """The command of a container, its environment without CDI's, and files by their paths.

    No words mean the image's command.
    """

    words: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)


def command_of(pod: Object, container: Json, find: Find) -> Command:
    """The command of a pod's container. Raises ConfigMissing."""
    given = _environment(pod, container, find)
    env = {"PATH": PATH, "HOSTNAME": pod["metadata"]["name"], "HOME": "/root", **given}
    # Arguments without a command go to the program of the image, which is unknown here.
    words = [*container["command"], *(container.get("args") or ())] if container.get("command") else []
    return Command(tuple(_expanded(word, given) for word in words), env, _files(pod, container, find))


def _environment(pod: Object, container: Json, find: Find) -> dict[str, str]:
    env: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for kind in _NAMES:
            reference = source.get(f"{'configMap' if kind == 'configmap' else kind}Ref")
            found = None if reference is None else _found(kind, reference, find)
            prefix = source.get("prefix") or ""
            env |= {f"{prefix}{key}": value for key, value in _data(kind, found).items()}
    for one in container.get("env") or ():
        if one.get("value") or "valueFrom" not in one:
            value: str | None = _expanded(one.get("value") or "", env)
        else:
            value = _from_source(pod, one["valueFrom"], find)
        if value is not None:
            env[one["name"]] = value
    return env


def _from_source(pod: Object, source: Json, find: Find) -> str | None:
    """The value of a variable; None for an optional one that is missing, and for sources left out here."""
    for kind, name in (("configmap", "configMapKeyRef"), ("secret", "secretKeyRef")):
        if name in source:
            return _entry(pod, kind, source[name], find)
    return _field(pod, (source.get("fieldRef") or {}).get("fieldPath", ""))


def _entry(pod: Object, kind: str, reference: Json, find: Find) -> str | None:
    """The value of a key of a ConfigMap or a Secret."""
    found, key = _found(kind, reference, find), reference["key"]
    data = _data(kind, found)
    if key in data:
        return data[key]
    if not reference.get("optional"):
        where = f"{pod['metadata']['namespace']}/{reference.get('name', '')}"
        raise ConfigMissing(f"couldn't find key {key} in {_NAMES[kind]} {where}")
    return None


def _found(kind: str, reference: Json, find: Find) -> Json | None:
    """The object of a reference, None for an optional one that is missing. Raises ConfigMissing."""
    name = reference.get("name") or reference.get("secretName") or ""
    found = find(kind, name)
    if found is None and not reference.get("optional"):
        raise ConfigMissing(f'{kind} "{name}" not found')
    return found


def _data(kind: str, found: Json | None) -> dict[str, str]:
    """The entries of a ConfigMap or a Secret as text."""
    data = dict((found or {}).get("data") or {})
    if kind == "secret":
        return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}
    return data


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


def _files(pod: Object, container: Json, find: Find) -> dict[str, str]:
    """The files that volumes put into the container, by their paths. Raises VolumeMissing."""
    volumes = {one["name"]: one for one in pod["spec"].get("volumes") or ()}
    found = {}
    for mount in container.get("volumeMounts") or ():
        contents = volume_files(pod, volumes.get(mount["name"]) or {}, find)
        inner = mount.get("subPath") or ""
        for path, content in contents.items():
            if not inner or path == inner or path.startswith(f"{inner}/"):
                rest = path.removeprefix(inner).strip("/")
                found[str(PurePosixPath(mount["mountPath"], rest))] = content
    return found


def volume_files(pod: Object, volume: Json, find: Find) -> dict[str, str]:
    """The files of a volume, by their paths in it; none for volumes of other kinds. Raises VolumeMissing."""
    found: dict[str, str] = {}
    for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
        try:
            for kind, name in (("configmap", "configMap"), ("secret", "secret")):
                if name in source:
                    found |= _payload(kind, source[name], find)
        except ConfigMissing as error:
            raise VolumeMissing(
                f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'
            ) from error
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            value = _field(pod, (item.get("fieldRef") or {}).get("fieldPath", ""))
            found |= {} if value is None else {item["path"]: value}
    return found


def _payload(kind: str, source: Json, find: Find) -> dict[str, str]:
    data = _data(kind, _found(kind, source, find))
    if not source.get("items"):
        return data
    for one in source["items"]:
        if one["key"] not in data and not source.get("optional"):
            raise ConfigMissing(f"{_NO_KEY[kind]}: {one['key']}")
    return {one["path"]: data[one["key"]] for one in source["items"] if one["key"] in data}
