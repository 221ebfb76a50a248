"""A server of a test: started, asked, killed."""

import atexit
import http.client
import json
import os
import signal
import subprocess
import time


class Server:
    """`moviola serve` on a free port."""

    def __init__(self, moviola, folder, models, *more):
        self.command = [moviola, "serve", "--listen", "127.0.0.1:0", "--jobs", os.path.join(folder, "jobs")]
        for model in models:
            self.command += ["--model", model]
        self.command += more
        self.log = os.path.join(folder, "server.log")
        self.process = None

    def start(self):
        log = open(self.log, "ab")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log)
        atexit.register(self.process.kill)
        line = self.process.stdout.readline().decode()
        assert line.startswith("http://"), open(self.log).read()[-2000:]
        self.port = int(line.strip().strip("/").rsplit(":", 1)[1])
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, "it did not stop by itself"
        said = open(self.log).read()
        assert "panicked" not in said, said[-2000:]

    def memory(self):
        """Resident memory in MB."""
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024

    def call(self, method, path, body=None, headers=None, timeout=60):
        """Status, headers and body of one call."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=None):
        status, _, answer = self.call(method, path, body, headers)
        return status, json.loads(answer)

    def wait(self, id, headers=None, limit=300):
        """A job that is over."""
        begun = time.monotonic()
        while time.monotonic() - begun < limit:
            status, job = self.json("GET", f"/v1/videos/{id}", headers=headers)
            assert status == 200, job
            if job["status"] in ("completed", "failed"):
                return job
            time.sleep(0.05)
        raise AssertionError(f"{id} does not end: {job}")


def small(prompt="a red circle moves left", **more):
    """A clip that takes a moment, of any of the tiny models."""
    return {"prompt": prompt, "size": "32x32", "num_inference_steps": 2, "seed": 7, **more}
