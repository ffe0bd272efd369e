"""The plugin's sockets over fake claims, and a kubelet that calls them."""

from collections.abc import Iterator

import pytest

from tests.kubeletplugin.fake_kubelet import FakeKubelet, Plugin, running_plugin


@pytest.fixture
def plugin() -> Iterator[Plugin]:
    with running_plugin() as plugin:
        yield plugin


@pytest.fixture
def kubelet(plugin: Plugin) -> Iterator[FakeKubelet]:
    with FakeKubelet(plugin.service_socket) as kubelet:
        yield kubelet
