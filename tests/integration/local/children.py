"""Scripts that behave like services, well or badly."""

import sys
from pathlib import Path

from rookery.processes.child import ServiceCommand

SERVICE = """
import http.server, os, signal, subprocess, sys, time
port, mark = int(sys.argv[1]), sys.argv[2]
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{}")
    def log_message(self, *args): pass
def end(*args):
    with open(mark, "a") as file: file.write("ended %d\\n" % port)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
with open(mark, "a") as file: file.write("began %d\\n" % port)
http.server.HTTPServer(("127.0.0.1", port), Ready).serve_forever()
"""

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""

WITH_WORKER = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(worker.pid, flush=True)
time.sleep(600)
"""


def script(
    name: str, code: str, folder: Path, *arguments: object, probe_url: str | None = None
) -> ServiceCommand:
    argv = (sys.executable, "-S", "-c", code, *map(str, arguments))
    return ServiceCommand(name, argv, folder / f"{name}.log", probe_url=probe_url)


def service(name: str, port: int, folder: Path) -> ServiceCommand:
    url = f"http://127.0.0.1:{port}/readyz"
    return script(name, SERVICE, folder, port, folder / "marks", probe_url=url)
