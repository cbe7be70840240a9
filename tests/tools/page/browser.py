"""A headless Chromium, driven by the DevTools protocol through a pipe. Only tests use it."""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program():
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Browser:
    """A context. `errors` is what the page's console and scripts complained of, `requests` what it fetched."""

    def __init__(self, width=1280, height=900, scale=1):
        self.folder = tempfile.mkdtemp(prefix="spillway-browser-")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.reader, self.writer = ours_in, ours_out
        command = [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
                   f"--user-data-dir={self.folder}",
                   f"--window-size={width},{height}", f"--force-device-scale-factor={scale}", "about:blank"]
        # The protocol's descriptors are 3 and 4; a shell puts them there.
        shell = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        self.process = subprocess.Popen(["bash", "-c", shell, "browser", *command], pass_fds=(theirs_in, theirs_out),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.number, self.session, self.buffer = 0, None, b""
        self.errors, self.events, self.requests = [], [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.resize(width, height, scale)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.reader)
        os.close(self.writer)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, limit=60, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + limit
        while True:
            said = self.next(end - time.monotonic(), method)
            if said.get("id") == self.number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']['message']}")
                return said["result"]

    def next(self, limit, method):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reader], [], [], max(0, limit))
            read = os.read(self.reader, 1 << 20) if ready else b""
            if not read:
                raise TimeoutError(f"the browser does not answer {method}")
            self.buffer += read
        message, self.buffer = self.buffer.split(b"\0", 1)
        said = json.loads(message)
        self.note(said.get("method"), said.get("params", {}))
        return said

    def note(self, method, said):
        if method == "Runtime.exceptionThrown":
            self.errors.append(said["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("description", one.get("value")) for one in said["args"]]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    def open(self, path, limit=60):
        """Waits until the page has drawn itself, and gives the milliseconds that it took by its own clock."""
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri(), limit=limit)
        end = time.monotonic() + limit
        while time.monotonic() < end:
            ready = self.value("document.body ? document.body.dataset.ready || '' : ''")
            if ready:
                return int(ready)
            time.sleep(0.05)
        raise TimeoutError(f"{path} does not become ready; errors: {self.errors}")

    def value(self, expression, limit=60):
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, limit=limit)
        if "exceptionDetails" in said:
            raise RuntimeError(said["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        return said["result"].get("value")

    def resize(self, width, height, scale=1, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=mobile)

    def dark(self, dark):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def key(self, key):
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def box(self, selector):
        """Left, top, width, height in the window, once scrolled into it."""
        return self.value(f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
                          "e.scrollIntoView({block: 'center', behavior: 'instant'});"
                          "const b = e.getBoundingClientRect();"
                          "return [b.left, b.top, b.width, b.height]; })()")

    def picture(self, path, selector=None, whole=False):
        clip = {}
        if selector:
            left, top, width, height = self.box(selector)
            scrolled = self.value("scrollY")
            clip = {"clip": {"x": left, "y": top + scrolled, "width": width, "height": height, "scale": 1},
                    "captureBeyondViewport": True}
        elif whole:
            width, height = self.value("[innerWidth, document.documentElement.scrollHeight]")
            clip = {"captureBeyondViewport": True,
                    "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        form = {"format": "webp", "quality": 75} if str(path).endswith(".webp") else {"format": "png"}
        said = self.call("Page.captureScreenshot", **form, **clip)
        pathlib.Path(path).write_bytes(base64.b64decode(said["data"]))

    def print(self, path):
        said = self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        pathlib.Path(path).write_bytes(base64.b64decode(said["data"]))
