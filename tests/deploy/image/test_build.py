"""The command line that builds the image names all that decides what comes out of it."""

from importlib.metadata import version

import pytest

from deploy.image.build import TOOLS, Wanted, command, own_platform

WANTED = Wanted(
    "registry.example/gpu-dra:1",
    "linux/arm64",
    {"BASE": "registry.example/python@sha256:0"},
    revision="abc",
    epoch=1700000000,
    extra=("--no-cache",),
)


def build_arguments(line: list[str]) -> dict[str, str]:
    named = [line[at + 1] for at, word in enumerate(line) if word == "--build-arg"]
    return dict(one.split("=", 1) for one in named)


@pytest.mark.parametrize("tool", TOOLS)
def test_either_tool_is_told_the_same(tool: str) -> None:
    line = command(tool, WANTED)

    assert line[0] == tool
    assert line[-2:] == ["--no-cache", "."]
    assert line[line.index("--tag") + 1] == WANTED.image
    assert line[line.index("--platform") + 1] == "linux/arm64"
    told = build_arguments(line)
    assert told["BASE"] == "registry.example/python@sha256:0"
    assert (told["VERSION"], told["REVISION"]) == (version("gpu-dra"), "abc")
    assert told["SOURCE_DATE_EPOCH"] == "1700000000"


def test_buildah_gives_every_file_one_time_and_is_told_its_own_platform() -> None:
    line = command("buildah", WANTED)
    assert line[line.index("--timestamp") + 1] == "1700000000"
    assert build_arguments(line)["BUILDPLATFORM"] == own_platform()
