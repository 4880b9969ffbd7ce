"""A headless Chromium, spoken to by its DevTools protocol over two pipes: no network, no package.

Found on the PATH under one of NAMES: `apt-get install chromium-headless-shell` on Debian; GitHub's runners have
google-chrome.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = f"no Chromium on the PATH ({', '.join(NAMES)}): apt-get install chromium-headless-shell"
FLAGS = (
    "--headless --remote-debugging-pipe --no-sandbox --no-first-run --disable-gpu --hide-scrollbars"
    " --disable-extensions --disable-dev-shm-usage --disable-background-networking --disable-component-update"
    " about:blank"
)
PATIENCE = 60.0  # seconds: a first start on a busy machine


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page, with the `problems` that it reports and the addresses that it `requests`."""

    def __init__(self, program: str, profile: Path):
        reading, self.to = (_high(fd) for fd in os.pipe())
        self.back, writing = (_high(fd) for fd in os.pipe())

        def places() -> None:
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        command = [program, f"--user-data-dir={profile}", *FLAGS.split()]
        self.process = subprocess.Popen(
            command, preexec_fn=places, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(reading)
        os.close(writing)
        self.rest, self.number, self.session = b"", 0, None
        self.events: list[dict] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        os.close(self.to)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.back)

    def send(self, method: str, **parameters: object) -> dict:
        """One command; its result. RuntimeError where the browser refuses or does not answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.back], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self.back, 1 << 16) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer")
            self.rest += data
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def open(self, page: Path) -> None:
        self.events.clear()
        self.send("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def look(self, width: int = 1100, height: int = 900, dark: bool = False, medium: str = "screen") -> None:
        """The window's size in CSS pixels, the scheme of colours, and screen or print."""
        mobile = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if mobile else 1, "mobile": mobile}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=medium, features=[scheme])

    def evaluate(self, expression: str) -> object:
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def press(self, key: str) -> None:
        code = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowRight": 39, "Escape": 27}[key]
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def pages(self) -> int:
        data = base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])
        return data.count(b"/Type /Page\n") + data.count(b"/Type/Page\n") + data.count(b"/Type /Page/")

    @property
    def problems(self) -> list[str]:
        self.evaluate("0")  # events that are on their way come first
        kinds = (
            "Runtime.exceptionThrown",
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Page.javascriptDialogOpening",
        )
        return [json.dumps(event["params"])[:400] for event in self.events if event["method"] in kinds]

    @property
    def requests(self) -> list[str]:
        self.evaluate("0")
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]


def _high(fd: int) -> int:
    """The same file under a number that 3 and 4 cannot be in the way of."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return moved
