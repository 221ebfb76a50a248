"""Bad input, made by hand and at random: an answer of 4xx with a message, or a closed connection; never a panic or a hang."""

import json
import random
import socket
import time

from api import png

# What a server may hold after all of them, in MB: open models, buffers of the allocator.
GROWTH = 300

FIELDS = ["prompt", "model", "size", "seconds", "width", "height", "num_frames", "fps", "seed", "num_inference_steps", "guidance_scale",
          "guidance_scale_2", "negative_prompt", "flow_shift", "lora", "input_reference", "image", "mask", "video", "video_prefix", "last_image",
          "reference", "audio", "keyframe[0]", "keyframe[x]", "n", "fit", "stream", "response_format", "partial_images", "video[id]", "nonsense"]
VALUES = ["", "0", "-1", "1e400", "nan", "inf", "32x32", "99999999999999999999", "0x0", "1x1", "16384x16384", "a" * 70000, "\u0000", "\ud83e\udd8a", "../../etc/passwd",
          "data:image/png;base64,AAAA", "data:,", "http://127.0.0.1/", "true", "[]", "{}", "{\"name\": 1}", "null", "5", "2", "video_0"]
PATHS = ["/v1/videos", "/v1/videos/edits", "/v1/videos/extensions", "/v1/images/generations", "/v1/images/edits", "/v1/videos/video_x/remix"]


def raw(port, bytes, wait=10):
    """What comes back for bytes, or nothing."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as stream:
        try:
            stream.sendall(bytes)
            answer = b""
            while part := stream.recv(65536):
                answer += part
        except OSError:
            return b""
    return answer


def form(draw, parts):
    boundary = "b%d" % draw.randrange(10 ** 9)
    body = b""
    for name, value, is_file in parts:
        body += f"--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"".encode()
        body += b"; filename=\"x\"\r\n\r\n" if is_file else b"\r\n\r\n"
        body += (value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")) + b"\r\n"
    return f"multipart/form-data; boundary={boundary}", body + f"--{boundary}--\r\n".encode()


def request(draw):
    """One bad request."""
    picture = png()
    path = draw.choice(PATHS)
    parts = []
    for _ in range(draw.randrange(6)):
        is_file = draw.random() < 0.25
        value = draw.choice([picture, picture[:40], b"RIFF0000WAVE", b"\0\0\0\x20ftypisom", draw.randbytes(64), b""]) if is_file else draw.choice(VALUES)
        parts.append((draw.choice(FIELDS), value, is_file))
    if draw.random() < 0.7:
        parts.append(("prompt", "x", False))
    if draw.random() < 0.5:
        kind, body = form(draw, parts)
    else:
        kind = "application/json"
        value = {name: (draw.choice([1, -1, 1.5, None, True, [], [1], {}, {"name": "x"}, value if isinstance(value, str) else "x"])) for name, value, _ in parts}
        body = json.dumps(value).encode("utf-8", "surrogatepass")
    if draw.random() < 0.2 and body:
        at = draw.randrange(len(body))
        body = body[:at] + draw.randbytes(draw.randrange(8)) + body[at + draw.randrange(8):]
    if draw.random() < 0.05:
        kind = draw.choice(["", "text/plain", "multipart/form-data", "application/json; charset=x", "multipart/form-data; boundary="])
    method = draw.choice(["POST"] * 12 + ["GET", "PUT", "PATCH", "OPTIONS", "BREW"])
    length = len(body) if draw.random() < 0.995 else draw.choice([0, len(body) + 100, 10 ** 12])
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + body


def queries(draw):
    id = draw.choice(["video_x", "..%2f..%2fetc", "%00", "%ff", "a" * 3000, "*", "video_" + "0" * 32])
    path = draw.choice(["/v1/videos?limit={}", "/v1/videos?after={}", "/v1/videos/{}", "/v1/videos/{}/content?variant=video", "/studio/{}", "/studio/api/runs/{}/metrics?offset=-1",
                        "/v1/images/{}/{}", "/v1/models/{}", "/studio/api/plan?width={}", "/{}"]).replace("{}", id)
    return f"{draw.choice(['GET', 'DELETE', 'HEAD'])} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()


def run(server, count, seed=0):
    draw = random.Random(seed)
    statuses, begun = {}, time.monotonic()
    before = server.memory()
    made = 0
    for number in range(count):
        bytes = request(draw) if draw.random() < 0.8 else queries(draw)
        asked = time.monotonic()
        answer = raw(server.port, bytes)
        assert time.monotonic() - asked < 10, f"a hang at {number}: {bytes[:300]}"
        assert server.process.poll() is None, f"it died at {number}: {bytes[:300]}"
        status = answer[9:12].decode() if answer else "closed"
        statuses[status] = statuses.get(status, 0) + 1
        assert status in ("closed", "204", "206") or status[0] in "24", f"{status} at {number}: {bytes[:500]} -> {answer[:800]}"
        if status.startswith("4") and not bytes.startswith(b"HEAD") and b"\r\n\r\n{" in answer:
            body = answer.split(b"\r\n\r\n", 1)[1]
            assert b'"error"' in body and b'"message"' in body, (status, body[:300])
        # What was taken is not worth its time.
        if status == "200" and b'"object":"video"' in answer and b'"id":"video_' in answer:
            made += 1
            id = answer.split(b'"id":"', 1)[1].split(b'"', 1)[0].decode()
            server.call("DELETE", f"/v1/videos/{id}")
    slow(server)
    assert server.memory() < before + GROWTH, f"memory grows from {before:.0f} to {server.memory():.0f} MB"
    print(f"{count} bad requests in {time.monotonic() - begun:.0f} s: {dict(sorted(statuses.items()))}, {made} clips were asked for by chance; memory {before:.0f} to {server.memory():.0f} MB")


def slow(server):
    """Bodies and headers that do not come, in numbers: the server goes on."""
    streams = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    for at, stream in enumerate(streams):
        stream.sendall(b"POST /v1/videos HTTP/1.1\r\nHost: 127.0.0.1\r\n" + (b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{" if at % 2 else b"X"))
    assert server.call("GET", "/health")[0] == 200
    for stream in streams:
        stream.close()
