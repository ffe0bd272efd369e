"""Plays the commands of containers: works out what they would print, without running them.

There are no images and no containers here, and the command of a pod must not touch this machine. A few
commands are played, by themselves and in ``sh -c``: echo, env, printenv, grep, cat (in a pipe), sleep, true,
false, exit, exec, and the programs that a driver brings (PlayedPrograms). For all others the log says that
they are not run. Of shell scripts, words, quotes, ``&&``, ``||``, ``;``, ``|`` and ``$NAME`` are understood.

A container has the variables of its manifest (Go: makeEnvironmentVariables in pkg/kubelet). Left out are
variables from ConfigMaps, Secrets, files, resources and Services, and the files of volumes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envtest.cluster import Output, PlayedPrograms
from kubernetes_rules.cel.library_regex import compiled
from kubernetes_rules.cel.types import CelError

Json = Mapping[str, Any]
Run = Callable[[str, Sequence[str]], Output | None]
"""Runs a program of the container with arguments; None where the program cannot be run."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENTRY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
# Two dollars stand for one (Go: third_party/forked/golang/expansion).
_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
NOT_FOUND = 127
SHELLS = ("sh", "bash", "ash", "dash")
PLAYED = ("echo", "env", "printenv", "grep", "cat", "sleep", "true", "false", "exit", "exec")
_MOST_DIGITS = 9
_SCRIPT_FLAG = re.compile(r"-[a-z]*c")
_OPERATORS = frozenset({"&&", "||", ";", "|"})
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_BEYOND = re.compile(r"[`*?~(){}\[\]<>&#]|\$|^\w+=")


@dataclass(frozen=True, slots=True)
class Command:
    """The command of a container and its environment without CDI's; no words mean the image's command."""

    words: tuple[str, ...]
    env: Mapping[str, str]


def command_of(pod: Json, container: Json) -> Command:
    """The command of a pod's container."""
    given: dict[str, str] = {}
    for one in container.get("env") or ():
        if "valueFrom" in one:
            value = _field(pod, (one["valueFrom"].get("fieldRef") or {}).get("fieldPath", ""))
        else:
            value = _with_values(one.get("value") or "", given)
        if value is not None:
            given[one["name"]] = value
    env = {"PATH": PATH, "HOSTNAME": pod["metadata"]["name"], "HOME": "/root", **given}
    # Arguments without a command go to the program of the image, which is unknown here.
    words = [*container["command"], *(container.get("args") or ())] if container.get("command") else []
    return Command(tuple(_with_values(word, given) for word in words), env)


def _field(pod: Json, path: str) -> str | None:
    """A field of the pod; None for any that is not known here."""
    matched = _ENTRY.fullmatch(path)
    if matched is not None:
        return str((pod["metadata"].get(matched[1]) or {}).get(matched[2], ""))
    part, _, name = path.partition(".")
    if (part, name) in (("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid")):
        return str(pod["metadata"][name])
    return str(pod["spec"].get("nodeName", "")) if path == "spec.nodeName" else None


def _with_values(text: str, env: Mapping[str, str]) -> str:
    """A text in which Kubernetes puts variables of the container for ``$(NAME)``."""
    return _REFERENCE.sub(lambda found: found[1] or env.get(found[2], found[0]), text)


class NotPlayed(Exception):
    """A command cannot be played; the text names it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One command of a script; ``operator`` is between it and the command before it."""

    operator: str
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class Player:
    """Plays the commands of one container.

    ``run`` runs those of ``programs``, which were brought into it. ``wait`` waits so many seconds, and
    returns whether the container ends.
    """

    run: Run
    programs: PlayedPrograms | None
    write: Callable[[str], None]
    wait: Callable[[float], bool]

    def play(self, command: Command) -> int | None:
        """Write what the command prints; returns its exit code, None where a part of it cannot be played."""
        try:
            if not command.words:
                raise NotPlayed("the image's own command")
            return self._stages(command, stages(command.words, command.env))
        except NotPlayed as beyond:
            brought = () if self.programs is None else self.programs.names
            played = ", ".join((*PLAYED, *brought))
            self.write(f"embedded cluster: {beyond} is not run here; played are {played}")
            return None

    def _stages(self, command: Command, todo: Sequence[Stage]) -> int:
        """Play the commands as their operators say; returns the exit code. Raises NotPlayed."""
        code, index = 0, 0
        while index < len(todo):
            end = index + 1
            while end < len(todo) and todo[end].operator == "|":
                end += 1
            operator = todo[index].operator
            # && and || bind equally, from the left; a pipe is one command.
            if operator == ";" or (operator == "&&") == (code == 0):
                if todo[index].words[0] == "exit":
                    return _exit_code(todo[index].words, code)
                played = self._pipe(command, todo[index:end])
                if played is None:
                    return code
                code = played
            index = end
        return code

    def _pipe(self, command: Command, parts: Sequence[Stage]) -> int | None:
        """Play the commands of a pipe; returns the last exit code, None when the container ends."""
        code, text = 0, ""
        for part in parts:
            words = part.words[1:] if part.words[0] == "exec" and len(part.words) > 1 else part.words
            seconds = self._wait_seconds(words)
            if seconds is not None:
                if self.wait(seconds):
                    return None
                code, text = 0, ""
                continue
            code, text = self._command(command, words, text)
        if text:
            self.write(text)
        return code

    def _command(self, command: Command, words: Sequence[str], given: str) -> Output:
        """Exit code and output of one command. Raises NotPlayed."""
        name, *rest = words
        match name, rest:
            case "echo", _:
                return 0, f"{' '.join(rest)}\n"
            case (("true" | ":"), _):
                return 0, ""
            case "false", _:
                return 1, ""
            case (("env" | "printenv"), []):
                return 0, "".join(f"{key}={value}\n" for key, value in command.env.items())
            case "printenv", [variable]:
                return (0, f"{command.env[variable]}\n") if variable in command.env else (1, "")
            case "cat", []:
                return 0, given
            case "grep", [pattern] if not pattern.startswith("-"):
                return _grep(pattern, given)
        played = self.run(name, rest)
        if played is None:
            raise NotPlayed(shlex.join(words))
        return played

    def _wait_seconds(self, words: Sequence[str]) -> float | None:
        """How long a command waits; None for one that does something. Raises NotPlayed."""
        if self.programs is not None and self.programs.is_server(words[0].rpartition("/")[2]):
            return float("inf")
        return _seconds(words[1]) if words[0] == "sleep" and len(words) == 2 else None


def stages(words: Sequence[str], env: Mapping[str, str]) -> list[Stage]:
    """The commands that a container's words are made of. Raises NotPlayed."""
    name = words[0].rpartition("/")[2]
    if name not in SHELLS:
        return [Stage(";", words)]
    if len(words) < 3 or not _SCRIPT_FLAG.fullmatch(words[1]):
        raise NotPlayed(shlex.join(words))
    found: list[Stage] = []
    operator, here = ";", []
    # The last command ends as if a semicolon followed.
    for token in [*_tokens(words[2]), ";"]:
        if token not in _OPERATORS:
            here.append(_expanded(token, words[2], env))
            continue
        if here:
            found.append(Stage(operator, here))
        operator, here = token, []
    return found


def _exit_code(words: Sequence[str], code: int) -> int:
    """The code that a script ends with: one that it says, or that of the command before. Raises NotPlayed."""
    if len(words) == 1:
        return code
    if len(words) > 2 or not words[1].isdecimal() or len(words[1]) > _MOST_DIGITS:
        raise NotPlayed(shlex.join(words))
    # A status has eight bits.
    return int(words[1]) % 256


def _grep(pattern: str, given: str) -> Output:
    try:
        # Python's own expressions may take for ever.
        found = [line for line in given.splitlines() if compiled(pattern).search(line)]
    except CelError as error:
        raise NotPlayed(f"grep {pattern}") from error
    return (0, "".join(f"{line}\n" for line in found)) if found else (1, "")


def _seconds(text: str) -> float:
    """How long a sleep is; raises NotPlayed."""
    if text in ("infinity", "inf"):
        return float("inf")
    matched = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", text, re.ASCII)
    if matched is None:
        raise NotPlayed(f"sleep {text}")
    return float(matched[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[matched[2]]


def _tokens(script: str) -> list[str]:
    """The words and operators of a script. Raises NotPlayed."""
    # With punctuation_chars, operators are tokens of their own even without spaces around them.
    lexer = shlex.shlex(script, posix=True, punctuation_chars=";&|<>()\n")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        found = list(lexer)
    except ValueError as error:
        raise NotPlayed(f"a script ({error})") from error
    # A line end separates commands as a semicolon does; repeated, or behind an operator, it adds nothing.
    return [(token.strip("\n") or ";") if set(token) <= set("\n;&|") else token for token in found]


def _expanded(token: str, script: str, env: Mapping[str, str]) -> str:
    """A word with the values of its variables. Raises NotPlayed.

    Quotes are gone by now. If the script has single quotes, this ``$`` may have been within them.
    """
    if "$" in token and "'" in script:
        raise NotPlayed(f"a script with {token} and single quotes")
    text = _VARIABLE.sub(lambda found: env.get(found[1] or found[2], ""), token)
    if _BEYOND.search(_VARIABLE.sub("", token)):
        raise NotPlayed(f"a script with {token}")
    return text
