from collections.abc import Iterator

import pytest

from tests.fakes.mock_openai import running_mock


@pytest.fixture(scope="module", name="port")
def _port() -> Iterator[int]:
    """A mock server's port."""
    with running_mock() as port:
        yield port
