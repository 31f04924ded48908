"""What the dashboard's tests share: a fleet, Chromium, and a page that fails its test on any script error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.dashboard_world import World, world


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A fleet with a hostile vehicle, for all tests of a file; it ends with them, or it would use the processor."""
    with world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of desktop size that fails the test on any script error, refused inline code or missing file."""
    faults: list[str] = []
    opened = browser.new_context(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(10_000)
    made = opened.new_page()
    made.on("pageerror", lambda fault: faults.append(str(fault)))
    made.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    yield made
    opened.close()
    # A browser notes answers such as 404 on its console; they are what those tests ask for.
    assert [fault for fault in faults if not fault.startswith("Failed to load resource: the server responded")] == []
