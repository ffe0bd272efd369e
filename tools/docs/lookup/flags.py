"""The tables of the flags and variables of all programs, and of the checks of two commands of gpuctl."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from gpuctl.doctor.check import Check
from tools.docs.lookup.marked import code, table

_HIDDEN = frozenset({"help", "version"})


def processes() -> Mapping[str, click.Command]:
    """Name of a program of the driver -> its command."""
    import controller.__main__
    import controller.cliques.__main__
    import controller.preemptor.__main__
    import controller.uninstall.__main__
    import controller.webhook.__main__
    import gpuctl.web.command
    import kubeletplugin.__main__
    import kubeletplugin.sharing.mps.__main__

    return {
        "gpu-dra-controller": controller.__main__.main,
        "gpu-dra-kubeletplugin": kubeletplugin.__main__.main,
        "gpu-dra-mps": kubeletplugin.sharing.mps.__main__.main,
        "gpu-dra-webhook": controller.webhook.__main__.main,
        "gpu-dra-uninstall": controller.uninstall.__main__.main,
        "gpu-dra-page": gpuctl.web.command.web,
        "gpu-dra-preemptor": controller.preemptor.__main__.main,
        "gpu-dra-cliques": controller.cliques.__main__.main,
    }


def process_tables() -> str:
    """A table for each process."""
    return "\n".join(
        f"### {name}\n{_sentence(command)}\n\n{_table(command)}" for name, command in processes().items()
    )


def gpuctl_tables() -> str:
    """A table for each command of gpuctl."""
    return "\n".join(
        f"### `{name}`\n{_sentence(command)}\n\n{_usage(command)}"
        for name, command in gpuctl_commands().items()
    )


def check_tables() -> str:
    """A table for the checks from outside, and one for those on a node."""
    from gpuctl.doctor.inside.checks import INSIDE
    from gpuctl.doctor.outside.checks import OUTSIDE

    parts: Mapping[str, Iterable[Check[Any]]] = {"Of the cluster": OUTSIDE, "Of a node": INSIDE}
    return "\n".join(f"### {title}\n{_check_table(checks)}" for title, checks in parts.items())


def verify_tables() -> str:
    """A table for each part of ``gpuctl verify`` that changes nothing."""
    from gpuctl.verify.checks.cuda_checks import CUDA_CHECKS
    from gpuctl.verify.checks.node_checks import NODE_CHECKS

    parts = {"The machine": NODE_CHECKS, "CUDA": CUDA_CHECKS}
    return "\n".join(f"### {title}\n{_check_table(checks)}" for title, checks in parts.items())


def _check_table(checks: Iterable[Check[Any]]) -> str:
    rows = [(code(one.name), one.looks_at, one.fails_when) for one in checks]
    return table(("check", "looks at", "fails if"), rows)


def gpuctl_commands() -> Mapping[str, click.Command]:
    """Command line -> command, for all commands of gpuctl that are not groups."""
    from gpuctl.__main__ import commands

    return dict(_leaves(commands, "gpuctl"))


def options(command: click.Command) -> list[click.Option]:
    """The options of a command that are not hidden, without --help and --version."""
    given = [one for one in command.params if isinstance(one, click.Option)]
    return [one for one in given if one.name not in _HIDDEN and not one.hidden]


def _leaves(command: click.Command, said: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield said, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            yield from _leaves(below, f"{said} {name}")


def _table(command: click.Command) -> str:
    rows = [
        (code(_written(one)), code(_variable(command, one)), _default(one), one.help or "")
        for one in options(command)
    ]
    return table(("flag", "variable", "default", "means"), rows)


def _usage(command: click.Command) -> str:
    arguments = [
        one.make_metavar(click.Context(command)) for one in command.params if isinstance(one, click.Argument)
    ]
    rows = [(code(_written(one)), _default(one), one.help or "") for one in options(command)]
    taken = f"Takes {code(' '.join(arguments))}.\n\n" if arguments else ""
    return taken + (table(("option", "default", "means"), rows) if rows else "")


def _written(option: click.Option) -> str:
    """The option with the values that it takes."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    if isinstance(option.type, click.IntRange | click.FloatRange) and option.metavar is None:
        return f"{names} NUMBER"
    metavar = option.make_metavar(click.Context(click.Command("any")))
    return f"{names} {metavar.strip('[]')}"


def _variable(command: click.Command, option: click.Option) -> str:
    prefix = command.context_settings.get("auto_envvar_prefix")
    if option.envvar:
        return option.envvar if isinstance(option.envvar, str) else " ".join(option.envvar)
    return f"{prefix}_{str(option.name).upper()}" if prefix and option.allow_from_autoenv else ""


def _default(option: click.Option) -> str:
    if option.required:
        return "has to be given"
    if isinstance(option.show_default, str):
        return option.show_default if " " in option.show_default else code(option.show_default)
    value = option.to_info_dict()["default"]
    is_nothing = value is None or value is False or value == "" or option.multiple
    return "" if is_nothing else code(f"{value:g}" if isinstance(value, float) else str(value))


def _sentence(command: click.Command) -> str:
    return " ".join((command.help or "").split("\n\n", maxsplit=1)[0].split())
