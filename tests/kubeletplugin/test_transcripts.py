"""What happens on a node, command by command: the stories in the files beside the tests of their subject."""

from pathlib import Path

import pytest

from tests.kubeletplugin.transcript import Story, stories


@pytest.mark.parametrize("story", stories(), ids=str)
def test_it_happens_as_it_is_told(story: Story, tmp_path: Path) -> None:
    story.check(tmp_path)
