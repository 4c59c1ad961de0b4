"""Which app the fixture `delayq` is for."""

import pytest
from scenes.app import app


@pytest.fixture
def delayq_app():
    return app
