"""A server that answers its health check, or misbehaves as FAKE_SERVER says.

Like the real one it has a child, here in a session of its own.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

mode = os.environ.get("FAKE_SERVER", "")
port = int(sys.argv[sys.argv.index("--port") + 1])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(os.environ["FAKE_PIDS"]).write_text(json.dumps([os.getpid(), child.pid]))
print("\x1b[31mloading\x1b[0m weights", flush=True)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if mode == "never ready" else 200)
        self.end_headers()

    def log_message(self, *args):
        pass


if mode == "dies":
    print("Traceback (most recent call last):", flush=True)
    print("RuntimeError: no kernel image is available", flush=True)
    print("Killing the other ranks", flush=True)
    sys.exit(3)
if mode == "is killed":
    os.kill(os.getpid(), signal.SIGKILL)
server = HTTPServer(("127.0.0.1", port), Handler)
if mode == "dies later":
    deadline = time.monotonic() + 1.5
    server.timeout = 0.1
    while time.monotonic() < deadline:
        server.handle_request()
    print("OutOfMemoryError: CUDA out of memory", flush=True)
    sys.exit(1)
server.serve_forever()
