"""Leaves secrets out of a report: functions over objects of the API and over text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from driver.claims.opaque import decode_any
from driver.devices.names import DRIVER_NAME
from driver.errors import ClaimRefused
from gpuctl.doctor.outside.programs import program_of

Object = dict[str, Any]

MASK = "(masked)"

KNOWN_VARIABLES = frozenset(
    {"NODE_NAME", "POD_NAME", "POD_NAMESPACE", "POD_UID", "GOMAXPROCS", "TZ"}
    | {"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
    | {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
)
"""Variables of containers whose values are kept, as those of variables that set a flag of the driver."""

FLAGS = frozenset(
    {"addr", "cdi-dir", "cdi-hook", "cert-file", "config", "driver-root", "health-addr", "host-driver-root"}
    | {"host-root", "key-file", "kubeconfig", "log-level", "memory-hook", "metrics-addr", "mps-dir", "name"}
    | {"node-name", "nvml", "plugin-data-dir", "plugins-dir", "pod-uid", "proc-root", "registry-dir"}
    | {"shm-mib", "sysfs-root", "used-memory-status-seconds"}
)
"""The flags of the driver's processes: none of them takes a secret."""

_VARIABLE_PREFIX = "GPU_DRA_"
_METADATA = (
    *("name", "generateName", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation"),
    *("resourceVersion", "ownerReferences", "finalizers"),
)
_LABELS = re.compile(
    r"(?:[a-z0-9.-]+\.)?(?:kubernetes\.io|k8s\.io)/|nvidia\.com/|app$|controller-revision-hash$|pod-template-",
    re.ASCII,
)
"""Labels whose values are kept: those of Kubernetes, Node Feature Discovery and GPU Feature Discovery."""

_FREE = frozenset({"binaryData", "stringData", "volumeAttributes", "flexVolume", "httpHeaders", "exec"})
"""Fields of pods that may hold anything, and have held passwords."""

_PLAIN = frozenset(
    {"name", "namespace", "path", "secretName", "defaultMode", "expirationSeconds", "audience"}
)
"""Fields below the name of a secret that say where it is, and not what it is."""

_OF_OTHERS = ("name", "image", "resources", "volumeMounts", "securityContext", "ports")
"""What is kept of a container that is not the driver's own."""

# No well-kept detector helps: detect-secrets 1.5 finds two of the seven forms that were tried without its
# measure of entropy, and with it takes the UUID of every GPU for a secret.
_WORDS = (
    r"(?:pass(?:word|wd|phrase|code)|(?<![a-z])(?:pass|pwd|auth|jwt)(?![a-z])|secret|token|credential|cookie|"
    r"authorization(?!\.)|signature|(?:api|access|account|private|client|signing|encryption|ssh)[_.-]?key)"
)
_NAMES = (
    r"(?:name|namespace|ref|path|file|dir|seconds|type|kind|count|mode|policy|version|url|bytes|authority)s?"
)
_SECRET_KEY = re.compile(rf"{_WORDS}(?!.*(?:{_NAMES})$)", re.IGNORECASE)
"""A name whose value is a secret; not one of a place, a number or a name of secrets."""

_KEY = rf"{_WORDS}(?![\w.-]{{0,40}}?{_NAMES}(?![\w.-]))[\w.-]{{0,40}}"
# The quotes of JSON within a text have backslashes, in YAML they may be doubled: they end as they began.
_QUOTED = (
    r"(?P<quote>''(?=[^\s'])|\\*[\"'])(?:(?!(?<!\\)(?P=quote))(?:\\.|[^\n]))*(?P=quote)?"
    r"(?:\"[^\"\n]*\"?|'[^'\n]*'?|[^\s\"',;}\]])*"  # what a shell joins to it
)
_IN_QUOTES = rf"\1\g<quote>{MASK}\g<quote>"
_LINE = r"^[ \t]*(?:- +)*(?:export +)?[\"']?[\w.-]{0,60}?"

_BELOW = r"(?:(?P=indent)(?: +|- )[^\n]*(?:\n|\Z)|[ \t]*\n)+"

_TEXT = tuple(
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), instead)
    for pattern, instead in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", MASK),
        # A JSON Web Token, such as a service account's: its head is JSON in base64, which begins {" and so
        # eyJ. Then the tokens of clouds, GitHub, GitLab, Slack, Docker, Hugging Face, NGC and others.
        (r"\beyJ[a-z0-9_-]{8,}\.[a-z0-9_-]+(?:\.[a-z0-9_-]*)?", MASK),
        (r"\b(?:A[KS]IA[A-Z0-9]{16}|gh[pousr]_\w{20,}|github_pat_\w{20,}|AIza[\w-]{30,})", MASK),
        (r"\b(?:glpat-|xox[a-z]-|dckr_pat_|hf_|nvapi-|sk-|npm_|pypi-|hvs\.)[\w-]{20,}", MASK),
        (r"\b(bearer)\s+[a-z0-9._~+/=-]{6,}", rf"\1 {MASK}"),
        (r"\b(basic)\s+[a-z0-9+/=]{16,}", rf"\1 {MASK}"),
        # User and password in a URL; the password may have an @ or a slash.
        (r"(?<=://)(?:[^\s\"'<>/:@]{0,200}:(?!\d+/)[^\s\"'<>]{0,500}|[^\s/\"'<>\\]{0,500})@", f"{MASK}@"),
        # Lines below a key of YAML or indented JSON: a block of text, a list, or a mapping.
        (
            rf"^((?P<indent> *)[^\n]*?{_KEY}[\"']?:(?: *[|>{{\[][^\n]*)?\n){_BELOW}",
            rf"\1\g<indent>  {MASK}\n",
        ),
        (rf"({_KEY}\\*[\"']?\s*(?::(?!:)|=(?!=))[ \t]*){_QUOTED}", _IN_QUOTES),
        # A line of YAML, of a configuration, or a header; then a key within a line.
        (rf"({_LINE}{_KEY}[\"']?[ \t]*(?::|=(?!=))[ \t]*)(?!\(masked)[^\s{{\[][^\n]*", rf"\1{MASK}"),
        (r"((?:authorization|cookie)[ \t]*:[ \t]*)(?!\(masked)[^\s\"'][^\n]*", rf"\1{MASK}"),
        (rf"({_KEY}:[ \t]*)(?!\(masked)[^\s\"',;}}{{\[:][^\n\"',;}}]*", rf"\1{MASK}"),
        (rf"({_KEY}[ \t]*=[ \t]*)(?!\(masked)[^\s\"';}}{{\[=&][^\s\"';}}&]*", rf"\1{MASK}"),
        # A flag whose value is the next word, which may be quoted; and user:password of curl.
        (rf"((?<![\w.-])--?[\w.-]{{0,40}}?{_KEY}[ \t]+){_QUOTED}", _IN_QUOTES),
        (rf"((?<![\w.-])--?[\w.-]{{0,40}}?{_KEY}[ \t]+)(?!--|\(masked)[^\s\"']+", rf"\1{MASK}"),
        (r"((?<![\w-])(?:-u|--(?:proxy-)?user)[ =]+[\"']?)[^\s:\"']+:[^\s\"']+", rf"\1{MASK}"),
    )
)
_FLAG = re.compile(rf"--?[\w.-]*?{_KEY}", re.IGNORECASE)
_SUSPECT = re.compile(
    r"pass|pwd|auth|jwt|secret|token|credential|cookie|signature|key|://|eyJ|bearer|basic|A[KS]IA|gh[pousr]_|"
    r"github_pat|AIza|glpat-|xox|dckr_pat|hf_|nvapi-|sk-|npm_|pypi-|hvs\.|-u|user",
    re.IGNORECASE,
)
"""What every text with a secret has that the patterns above find; most texts have none of it."""

_DOCUMENT = re.compile(r"[{\[\"]")
_MOST_FAILURES = 8
"""How often in a line something is taken for JSON that is not; each try may read the line to its end."""


def masked_text(text: str) -> str:
    """The text, a log for example, without what looks like a token, a password or a private key."""
    if not _SUSPECT.search(text):
        return text
    document = _masked_document(text)
    if document is not None:
        return document
    kept: list[str] = []
    plain: list[str] = []  # lines that are no JSON, together: a key or a block of YAML has several
    for line in text.splitlines(keepends=True):
        document = _masked_document(line) if line.endswith("\n") else None
        if document is None:
            plain.append(_without_documents(line))
        else:
            kept += [_without_patterns("".join(plain)), document]
            plain.clear()
    return "".join((*kept, _without_patterns("".join(plain))))


def _without_patterns(text: str) -> str:
    for pattern, instead in _TEXT:
        text = pattern.sub(instead, text)
    return text


def _masked_document(text: str) -> str | None:
    """A text that is a document of JSON, masked by its keys; None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    masked = _value("", document)
    if masked == document:
        return text
    end = "\n" * text.endswith("\n")
    return json.dumps(masked, indent=1 if "\n" in text.strip() else None) + end


def _without_documents(line: str) -> str:
    """A line without the secrets of the documents, and of the quoted texts, of JSON in it."""
    decoder, kept, done, left = json.JSONDecoder(), "", 0, _MOST_FAILURES
    for found in _DOCUMENT.finditer(line):
        if found.start() < done or not left:
            continue
        try:
            document, end = decoder.raw_decode(line, found.start())
        except (ValueError, RecursionError):
            left -= 1
            continue
        masked = _value("", document)
        same = line[found.start() : end]
        kept += line[done : found.start()]
        kept += same if masked == document else json.dumps(masked)
        done = end
    return kept + line[done:]


def masked_json(content: Any) -> Any:
    """A document that is not an object of the API, without values that may be secret."""
    return _value("", content)


def masked_object(item: Object) -> Object:
    """An object of the API without annotations, labels of users, and values that may be secret.

    It raises nothing: a field of an unexpected form is masked.
    """
    # Annotations may hold anything; kubectl keeps a copy of the whole object in one.
    kept: Object = {name: item[name] for name in ("apiVersion", "kind") if name in item}
    kept["metadata"] = _metadata(item.get("metadata") or {})
    for name, value in item.items():
        if name not in ("apiVersion", "kind", "metadata"):
            kept[name] = _value(name, value)
    return kept


def _metadata(metadata: Mapping[str, Any]) -> Object:
    kept = {name: metadata[name] for name in _METADATA if name in metadata}
    labels = {
        name: value if _LABELS.match(name) else MASK for name, value in (metadata.get("labels") or {}).items()
    }
    return {**kept, "labels": labels} if labels else kept


def _value(name: str, value: Any, *, secret: bool = False) -> Any:
    """A field of an object, by its name; ``secret``: it is below a field that is one."""
    secret = (secret or _is_secret(name)) and name not in _PLAIN
    if secret and isinstance(value, str | int | float) and not isinstance(value, bool):
        return MASK
    if isinstance(value, str):
        return masked_text(value)
    if name == "opaque" and isinstance(value, dict):
        return masked_opaque(value)
    if name == "metadata" and isinstance(value, dict):
        return _metadata(value)
    if name in ("containers", "initContainers", "ephemeralContainers") and isinstance(value, list):
        return [_container(one) for one in value if isinstance(one, dict)]
    if isinstance(value, dict):
        named = _is_secret(str(value.get("name")))
        return {
            key: _field(key, one, secret=secret or (named and key == "value")) for key, one in value.items()
        }
    if isinstance(value, list):
        if name == "devices" and any(isinstance(one, dict) and "driver" in one for one in value):
            return [_device_status(one) for one in value]
        before = ("", *value)
        return [
            _value(name, one, secret=secret or (isinstance(flag, str) and _FLAG.fullmatch(flag) is not None))
            for flag, one in zip(before, value, strict=False)
        ]
    return value


def _is_secret(name: str) -> bool:
    return _SECRET_KEY.search(name[:200]) is not None


def _field(name: str, value: Any, *, secret: bool) -> Any:
    """A field of an object; only the digest of a caBundle, which is long, and enough to compare."""
    if name in _FREE:
        return MASK
    if name == "caBundle":
        return f"sha256:{hashlib.sha256(str(value).encode()).hexdigest()}"
    return _value(name, value, secret=secret)


def masked_opaque(opaque: Mapping[str, Any]) -> Object:
    """An opaque configuration; without its parameters unless they are this driver's and valid."""
    driver = opaque.get("driver")
    if driver == DRIVER_NAME:
        try:
            # Parameters with a mistake may hold anything.
            decode_any(opaque.get("parameters"))
        except ClaimRefused:
            return {"driver": driver, "parameters": f"{MASK}: it contains mistakes"}
        return {"driver": driver, "parameters": opaque.get("parameters")}
    return {"driver": driver, "parameters": MASK}


def _device_status(entry: Any) -> Any:
    """An entry of ``status.devices`` of a claim; of other drivers' devices only which device it is."""
    if not isinstance(entry, dict) or entry.get("driver") == DRIVER_NAME:
        return _value("", entry)
    return {name: entry[name] for name in ("driver", "pool", "device", "shareID") if name in entry}


def _container(container: Object) -> Object:
    """A container; its command line and environment only if it is one of the driver."""
    if program_of(container) is None:
        return {name: _value(name, container[name]) for name in _OF_OTHERS if name in container}
    kept = {
        name: _value(name, value)
        for name, value in container.items()
        if name not in ("env", "args", "command")
    }
    for name in ("command", "args"):
        if container.get(name):
            kept[name] = masked_words([str(word) for word in container[name]])
    if container.get("env"):
        kept["env"] = [_variable(one) for one in container["env"] if isinstance(one, dict)]
    return kept


def _variable(variable: Object) -> Object:
    name = str(variable.get("name"))
    flag = name.removeprefix(_VARIABLE_PREFIX).lower().replace("_", "-")
    known = name in KNOWN_VARIABLES or (name.startswith(_VARIABLE_PREFIX) and flag in FLAGS)
    if "value" not in variable:
        return variable  # valueFrom only names a field, a ConfigMap or a Secret
    return {"name": name, "value": masked_text(str(variable["value"])) if known else MASK}


def masked_words(words: Sequence[str]) -> list[str]:
    """A command line of the driver, without the values of unknown flags."""
    kept: list[str] = []
    hides = False  # whether the word is the value of an unknown flag
    for word in words:
        flag, equals, value = word.partition("=")
        if word.startswith("--"):
            known = flag.removeprefix("--") in FLAGS
            kept.append(f"{flag}={masked_text(value) if known else MASK}" if equals else flag)
            hides = not known and not equals
        else:
            kept.append(MASK if hides else masked_text(word))
            hides = False
    return kept
