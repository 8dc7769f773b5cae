# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, driven over its own protocol through two pipes.

with browser.Browser(binary, folder) as one:
    page = one.open(path, width=400, dark=False)
    page.run("document.title")
"""

import base64
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import time

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-pipe",
)  # fmt: skip
_SECONDS = 60  # for one answer


def found() -> str | None:
    """The program, if this machine has one."""
    return shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """A browser process; its profile is in `folder`, which is empty."""

    def __init__(self, binary: str, folder: pathlib.Path):
        read, self._to = os.pipe()
        self._from, write = os.pipe()
        # The browser reads from file descriptor 3 and writes to 4.
        command = f'exec "$@" 3<&{read} 4>&{write}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", binary, *_FLAGS, f"--user-data-dir={folder}"],
            pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read)
        os.close(write)
        self._numbers, self._rest = itertools.count(1), b""
        self.events: list[dict] = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(_SECONDS)
        os.close(self._to)
        os.close(self._from)

    def open(self, path: pathlib.Path, width: int, dark: bool = False) -> "Page":
        """A page of this width, once it is loaded."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        found = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, found["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            page.ask(f"{domain}.enable")
        page.look(width, dark)
        page.ask("Page.navigate", url=path.absolute().as_uri())
        page.wait_until_loaded()
        return page

    def ask(self, method: str, session: str | None = None, **parameters) -> dict:
        """Sends a command and returns its result; events before the answer are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")

        while True:
            answer = self.next_message(f"the answer to {method}")
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def next_message(self, what: str) -> dict:
        """The next answer or event; an event is kept as well."""
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"the browser did not send {what} within {_SECONDS} s"
            read = os.read(self._from, 1 << 20)
            assert read, f"the browser ended before it sent {what}"
            self._rest += read

        first, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(first)
        if "method" in message:
            self.events.append(message)
        return message


class Page:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str):
        self._browser, self._session = browser, session

    def ask(self, method: str, **parameters) -> dict:
        """As `Browser.ask`, for this page."""
        return self._browser.ask(method, self._session, **parameters)

    def look(self, width: int, dark: bool) -> None:
        """The width of the window, and the reader's setting of light or dark."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str):
        """The value of a JavaScript expression."""
        about = {"returnByValue": True, "awaitPromise": True}
        answer = self.ask("Runtime.evaluate", expression=script, **about)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def point(self, x: float, y: float) -> None:
        """Moves the mouse to a place of the window, and returns once the page has heard of it."""
        self._wait_until_drawn()
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self._wait_until_drawn()

    def click(self, selector: str) -> None:
        """Presses and releases the mouse over an element."""
        self.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        self._wait_until_drawn()
        box = self.run(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            about = {"type": kind, "button": "left", "clickCount": 1}
            self.ask("Input.dispatchMouseEvent", **about, **place)

    def _wait_until_drawn(self) -> None:
        """Returns once the page is drawn as it is now.

        Which element the mouse is over is decided by the picture that was drawn last, and moves of
        the mouse are told to the page when the next one is drawn.
        """
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait_until_loaded(self) -> None:
        """Returns once the page is complete."""
        self.run(
            "new Promise((done) => document.readyState === 'complete' ? done()"
            " : addEventListener('load', () => done()))"
        )

    def before_scripts(self, script: str) -> None:
        """Runs a script before those of every page that is loaded from now on."""
        self.ask("Page.addScriptToEvaluateOnNewDocument", source=script)

    def reload(self, script: str) -> None:
        """Runs a script that loads the page again, and waits for the new one."""
        before = len(self._browser.events)
        self.run(f"void ({script})")
        # Nothing is asked of the page in between: it may be the old one still, about to go.
        self._wait_for("Page.loadEventFired", self._wait_for("Page.frameNavigated", before))

    def _wait_for(self, name: str, first: int) -> int:
        """Waits for an event of this name, from event number `first` on; returns the next number.

        An event may come before the answer to the command that causes it.
        """
        number = first
        while True:
            while number < len(self._browser.events):
                event, number = self._browser.events[number], number + 1
                if event["method"] == name and event.get("sessionId") == self._session:
                    return number
            self._browser.next_message(name)

    def complaints(self) -> list[dict]:
        """Errors of scripts, failed requests and everything on the console so far."""
        self.run("0")  # what was sent before it has arrived then
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self._browser.events if event["method"] in kinds]

    def picture(self, scale: int = 1) -> bytes:
        """A PNG of the whole page, with `scale` dots to a point along each axis."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        answer = self.ask(
            "Page.captureScreenshot", captureBeyondViewport=True, clip=size | {"scale": scale}
        )
        return base64.b64decode(answer["data"])
