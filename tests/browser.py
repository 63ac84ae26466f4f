"""Pages in a headless browser: a script runs in each page, in a frame of a given width, and says what it found."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: Loads the pages one after the other, runs the script in each, and sends a list of what it returned.
_FRAME = """<!doctype html><meta charset="utf-8"><iframe id="frame" style="border:0"></iframe><script>
const pages=PAGES, check=async (page)=>{SCRIPT};
const pause=(ms)=>new Promise(done=>setTimeout(done,ms));
(async()=>{const found=[],frame=document.getElementById("frame");
frame.width=WIDTH;frame.height=850;
for(const page of pages){try{
await new Promise(done=>{frame.onload=done;frame.src=page});await pause(30);
found.push(await check(frame.contentWindow))}catch(error){found.push({error:String(error)})}}
await fetch("/found",{method:"POST",body:JSON.stringify(found)})})();
</script>"""


def browser() -> str:
    """The program; the test is skipped if there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed")
    return found


def look(folder: Path, pages: list[str], script: str, width: int, profile: Path) -> tuple[list[Any], list[str], str]:
    """What ``script`` returned in each page under ``folder``, the requests to the server, and the browser's console.

    ``script`` is the body of an async function of the window ``page``; ``pause(ms)`` waits. Names of other hosts are
    not resolved.
    """
    program = browser()
    requests: list[str] = []
    found: list[Any] = []
    ended = threading.Event()
    frame = _FRAME.replace("PAGES", json.dumps(pages)).replace("SCRIPT", script).replace("WIDTH", str(width))

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/frame":
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(frame.encode())
                return
            requests.append(self.path)
            super().do_GET()

        def do_POST(self) -> None:
            found.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            ended.set()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1400,900"]
    options += [f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with (profile.parent / f"{profile.name}.log").open("w+") as log:
        process = subprocess.Popen(
            [program, *options, f"http://127.0.0.1:{server.server_port}/frame"], stderr=log, stdout=subprocess.DEVNULL
        )
        try:
            assert ended.wait(300), "the browser did not answer in 300 seconds"
        finally:
            process.terminate()
            process.wait(20)
            server.shutdown()
            server.server_close()
        log.seek(0)
        console = "\n".join(line for line in log if "CONSOLE" in line)
    return found, [path for path in requests if path != "/favicon.ico"], console
