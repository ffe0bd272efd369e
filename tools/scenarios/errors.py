"""What is wrong with a scenario as it is written, before anything of it runs."""

from __future__ import annotations

from typing import ClassVar

from driver.errors import ConfigError


class ScenarioWrong(ConfigError):
    """A scenario's description, its page, or a file beside it cannot be used as it stands."""

    retryable: ClassVar[bool] = False
