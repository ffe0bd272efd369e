"""What a command prints into a pipe: both streams, an error as one line, and the exit code."""

from click.testing import CliRunner

from tests.clusters import commands, error_text
from tests.gpus import DriverError


def printed(*arguments: str, name: str | None = None) -> str:
    """The command line and all that follows it; ``name`` stands for arguments that differ each time."""
    result = CliRunner().invoke(commands, arguments, prog_name="gpuctl")
    lines = [f"$ gpuctl {name or ' '.join(arguments)}", result.output.rstrip("\n")]
    if isinstance(result.exception, DriverError):
        lines.append(f"gpuctl: {error_text(result.exception)}")
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    lines += [f"(exit code {result.exit_code})"] if result.exit_code else []
    return "\n".join(line for line in lines if line) + "\n"
