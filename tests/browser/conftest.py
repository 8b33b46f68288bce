"""A headless Chromium that tells what a page asked for and complained about."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CHROMEDRIVER = shutil.which("chromedriver")
SWITCHES = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True)
class Visit:
    """A page that has loaded.

    Args:
        driver: the browser, on the page.
        console: what the page's console said.
        requests: every address the page asked for, but for data: and the page itself.
    """

    driver: Any
    console: tuple[str, ...]
    requests: tuple[str, ...]

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression on the page."""
        return self.driver.execute_script(f"return {script}")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Chromium for the session, with a profile of its own; a skip where something for it is missing."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (extra `dev`)")
    if not CHROMIUM or not CHROMEDRIVER:
        pytest.skip("chromium or chromedriver is not installed (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(switch)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # which Chromium cannot set up for root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chromium = webdriver.Chrome(options=options, service=webdriver.ChromeService(CHROMEDRIVER))
    yield chromium
    chromium.quit()


@pytest.fixture
def visit(driver: Any) -> Callable[[Path | str, int], Visit]:
    """Open a file or an address in a window so many CSS pixels wide."""

    def go(page: Path | str, width: int = 1280) -> Visit:
        address = page.resolve().as_uri() if isinstance(page, Path) else page
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for kind in ("browser", "performance"):
            driver.get_log(kind)  # reading empties it
        driver.get(address)
        events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return Visit(
            driver,
            tuple(entry["message"] for entry in driver.get_log("browser")),
            tuple(url for url in asked if not url.startswith("data:") and url.partition("#")[0] != address),
        )

    return go
