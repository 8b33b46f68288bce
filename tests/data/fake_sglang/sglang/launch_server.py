"""A server that answers its health check, or misbehaves as FAKE_SERVER says. It says what the real one says.

Like the real one it has a child, here in a session of its own, that carries the title of a rank.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

RANK = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, b"sglang::scheduler", 0, 0, 0)  # PR_SET_NAME
time.sleep(float(sys.argv[1]))
"""
PROGRESS = """
[2026-11-30 16:40:01] server_args=ServerArgs(model_path='tiny')
[2026-11-30 16:40:02 TP0] Init torch distributed begin.
[2026-11-30 16:40:02 TP0] Load weight begin. avail mem=94.10 GB
\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00s/it]
[2026-11-30 16:40:04 TP0] Load weight end. elapsed=2.00 s, type=X, avail mem=50.00 GB, mem usage=44.10 GB.
[2026-11-30 16:40:05 TP0] KV Cache is allocated. #tokens: 65536, K size: 1.00 GB, V size: 1.00 GB
[2026-11-30 16:40:06 TP0] Capture target decode CUDA graph begin. backend=full, avail mem=9.50 GB
\r  0%|          | 0/2 [00:00<?, ?it/s]
\rCapturing batches (bs=8 avail_mem=9.40 GB):   0%|          | 0/2 [00:00<?, ?it/s]
\rCapturing batches (bs=4 avail_mem=9.10 GB):  50%|#####     | 1/2 [00:00<00:00,  3.0it/s]
\rCapturing batches (bs=4 avail_mem=9.10 GB): 100%|##########| 2/2 [00:00<00:00,  3.0it/s]
[2026-11-30 16:40:08 TP0] Capture target decode CUDA graph end. elapsed=0.60 s, mem usage=1.25 GB, avail mem=8.25 GB.
[2026-11-30 16:40:09] INFO:     Application startup complete.
"""

mode = os.environ.get("FAKE_SERVER", "")
port = int(sys.argv[sys.argv.index("--port") + 1])
lasts = "1.5" if "rank dies" in mode else "600"
child = subprocess.Popen([sys.executable, "-c", RANK, lasts], start_new_session=True)
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(os.environ["FAKE_PIDS"]).write_text(json.dumps([os.getpid(), child.pid]))
if to := os.environ.get("FAKE_ENV"):
    Path(to).write_text(json.dumps(dict(os.environ)))
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
if mode == "hangs" or "never listens" in mode:
    time.sleep(600)
if mode == "compiles":
    subprocess.run([os.environ["FAKE_COMPILER"], "7"])
if mode in ("captures", "dies in capture"):
    for line in PROGRESS.split("\n")[: 11 if mode == "dies in capture" else None]:
        print(line, end="" if line.startswith("\r") else "\n", flush=True)
        time.sleep(0.05)
if mode == "dies in capture":
    print(
        "\nTraceback (most recent call last):\ntorch._dynamo.exc.Unsupported: Attempted to call", flush=True
    )
    print("RuntimeError: Rank 0 scheduler died during initialization (exit code: -3).", flush=True)
    sys.exit(1)
server = HTTPServer(("127.0.0.1", port), Handler)
print("[2026-11-30 16:40:10] The server is fired up and ready to roll!", flush=True)
if mode == "dies later":
    deadline = time.monotonic() + 1.5
    server.timeout = 0.1
    while time.monotonic() < deadline:
        server.handle_request()
    print("OutOfMemoryError: CUDA out of memory", flush=True)
    sys.exit(1)
server.serve_forever()
