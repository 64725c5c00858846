"""A browser for tests of pages: Chromium, by its debugging pipe."""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


class Browser:
    """Chromium by its debugging pipe: one page, and everything it said and asked for."""

    def __init__(self, profile: Path) -> None:
        (their_in, self.ours_out), (self.ours_in, their_out) = os.pipe(), os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        command = f'exec "$0" "$@" 3<&{their_in} 4>&{their_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(their_in, their_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        self.reader = os.fdopen(self.ours_in, "rb")
        self.events: list[dict[str, Any]] = []
        self.number, self.session, self.rest = 0, "", b""
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.ours_out, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def receive(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            more = os.read(self.ours_in, 1 << 16)
            assert more, "the browser has gone"
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, path: Path, width: int = 1280, height: int = 800) -> None:
        mobile = width < 600
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )
        self("Page.navigate", url=path.as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.receive())
        self("Runtime.evaluate", expression=SETTLED, awaitPromise=True)

    def ask(self, expression: str) -> Any:
        found = self(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def key(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def said(self, *methods: str) -> list[dict[str, Any]]:
        return [e["params"] for e in self.events if e.get("method") in methods]

    def close(self) -> None:
        self.session = ""
        with contextlib.suppress(OSError, AssertionError):
            self("Browser.close")
        self.process.wait(timeout=20)
        self.reader.close()
        os.close(self.ours_out)


SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def picture(browser: Browser, name: str) -> str:
    return browser.ask(f"document.getElementById('{name}').toDataURL()")


def assert_quiet(browser: Browser, path: Path) -> None:
    """No errors, no warnings, and no request but the one for the file."""
    assert (
        browser.said("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded") == []
    )
    asked = [r["request"]["url"] for r in browser.said("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [path.as_uri()]
