"""What the document of the API allows and what it does not, as schemathesis makes it up: no answer but those that it promises."""

import os
import re
import subprocess
import sys

# What a server may hold after all of them, in MB.
GROWTH = 300

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def run(server, examples):
    program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    before = server.memory()
    words = [program, "run", f"http://127.0.0.1:{server.port}/openapi.json", "--max-examples", str(examples), "--seed", "1", "--checks", CHECKS,
             "--phases", "coverage,fuzzing", "--continue-on-failure", "--no-color"]
    # It leaves a folder of its own where it runs.
    done = subprocess.run(words, capture_output=True, text=True, cwd=os.path.dirname(server.log))
    assert server.process.poll() is None, "it died"
    assert server.call("GET", "/health")[0] == 200
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert server.memory() < before + GROWTH, f"memory grows from {before:.0f} to {server.memory():.0f} MB"
    cases = re.search(r"(\d+) generated", done.stdout)
    print(f"schemathesis: {cases.group(1) if cases else 'all'} cases; memory {before:.0f} to {server.memory():.0f} MB")
