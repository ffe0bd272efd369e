"""The --nvml flag: what each form gives, and what a wrong one is told."""

import pytest

from fakegpu.nvml.flag import nvml_from_flag
from tests.gpus import ConfigError, known_machines


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        *((flag, f"{', '.join(known_machines())}") for flag in ("", "nvidia", "Fake:t4")),
        *(
            (flag, "`gpuctl plan --machines` lists")
            for flag in ("fake:dgx-h900", "fake:", "fake:/no/such.yaml")
        ),
    ],
)
def test_an_unknown_one_is_told_where_the_known_ones_are(flag: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        nvml_from_flag(flag)
    assert not caught.value.retryable
