"""A page in a Chromium that types into it, audits it, and says what a screen reader is told."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

from tests.patience import PATIENCE_S

PATIENCE_MS = PATIENCE_S * 1e3
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
WIDTHS_PX = {"desktop": 1280, "phone": 390}

OUTLINED = """() => {
  const at = document.activeElement, style = getComputedStyle(at);
  return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
}"""
HOLDS = "() => document.activeElement.getAttribute('data-stop')"
MARK_STOPS = """() => {
  const stops = document.querySelectorAll('a[href], summary, [tabindex="0"]');
  let marked = 0;
  for (const each of stops)
    if (each.checkVisibility()) each.setAttribute('data-stop', marked++);
  return marked;
}"""


@contextmanager
def shown(
    html: str, folder: Path, chromium: str, colours: str = "light", screen: str = "desktop"
) -> Iterator[Page]:
    """The page, open.

    Args:
        colours: `light` or `dark`, as the reader's system prefers.
        screen: one of `WIDTHS_PX`.
    """
    file = folder / "shown.html"
    file.write_text(html, encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=FLAGS, timeout=PATIENCE_MS
        )
        # The auditor is a script, which the page itself bans.
        page = browser.new_page(
            bypass_csp=True,
            color_scheme="dark" if colours == "dark" else "light",
            viewport={"width": WIDTHS_PX[screen], "height": 800},
        )
        page.set_default_timeout(PATIENCE_MS)
        page.goto(file.as_uri())
        yield page
        browser.close()


def violations(page: Page) -> List[str]:
    """What axe-core finds wrong for readers who cannot see, or not well."""
    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


def stops_by_tab(page: Page) -> List[str]:
    """Where Tab leads, from the beginning until it leaves the page.

    Returns:
        number of the stop in the document, with ` without outline` where none is drawn.
    """
    stops: List[str] = []
    for _ in range(page.evaluate(MARK_STOPS) + 1):
        page.keyboard.press("Tab")
        stop = page.evaluate(HOLDS)
        if stop is None:
            break
        stops.append(stop if page.evaluate(OUTLINED) else f"{stop} without outline")
    return stops
