"""A page -> what it looks like in headless Chromium, and what it complains of, asks for and lets stick out.

Chromium is Debian's (`apt install chromium-headless-shell`), playwright (the dev extra) only speaks with it: nothing is
downloaded. Where one of the two is missing the tests that look are skipped, but for CI, where they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PHONE, DESK = 375, 1280  # pixels

# Elements that reach beyond the right edge and cannot be scrolled to where they stand: [tag and class, right edge].
_STICKING_OUT = """() => {
  const wide = document.documentElement.clientWidth, found = [];
  for (const element of document.body.querySelectorAll('*')) {
    const box = element.getBoundingClientRect();
    if (box.width === 0 || box.right <= wide + 1) continue;
    let around = element.parentElement;
    while (around && !['auto', 'scroll', 'hidden'].includes(getComputedStyle(around).overflowX))
      around = around.parentElement;
    if (!around) found.push([element.tagName + '.' + element.getAttribute('class'), box.right]);
  }
  return found.slice(0, 8);
}"""

# Shown text of SVGs smaller than so many pixels on the screen: [text, pixels].
_SMALL = """(least) => {
  const found = [];
  for (const text of document.querySelectorAll('svg text')) {
    if (!text.textContent.trim() || text.getClientRects().length === 0) continue;
    const size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;
    if (size < least) found.push([text.textContent, size]);
  }
  return found.slice(0, 8);
}"""


@dataclass
class View:
    """A page as it is shown. ``complaints`` are its console's errors and what it threw, ``requests`` what it asked for
    beside itself."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def sticking_out(self) -> list[Any]:
        """Elements that reach beyond the right edge of the window, and their right edges in pixels."""
        return list(self.page.evaluate(_STICKING_OUT))

    def small_text(self, least: float) -> list[Any]:
        """Texts of SVGs that are shown smaller than ``least`` pixels."""
        return list(self.page.evaluate(_SMALL, least))

    def shoot(self, place: Path) -> bytes:
        """A picture of the whole page, which is kept at ``place``."""
        return bytes(self.page.screenshot(path=place, full_page=True))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium; one for all tests of a module."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        absent("no Chromium is on PATH; `apt install chromium-headless-shell fonts-dejavu-core`")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("playwright is not installed; `pip install -e .[dev]`")
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


def absent(reason: str) -> NoReturn:
    """Skip the test, or in CI fail it."""
    if os.environ.get("KATA_CI"):
        pytest.fail(f"CI must look at the pages, but {reason}")
    pytest.skip(reason)


@contextmanager
def view(browser: Browser, file: Path, *, width: int = DESK, dark: bool = False) -> Iterator[View]:
    """Open a file. Nothing but the file itself can be loaded: what it asks for is noted and refused."""
    scheme: Any = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_S * 1000)
    seen = View(context.new_page())
    seen.page.on("console", lambda message: seen.complaints.append(message.text) if message.type == "error" else None)
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    address = file.resolve().as_uri()

    def answer(route: Any) -> None:
        if route.request.url.partition("#")[0] == address:
            route.continue_()
        else:
            seen.requests.append(route.request.url)
            route.abort()

    context.route("**/*", answer)
    try:
        seen.page.goto(address)
        yield seen
    finally:
        context.close()
