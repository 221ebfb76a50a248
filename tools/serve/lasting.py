"""Load, and `kill -9` at any moment under load."""

import http.client
import random
import statistics
import threading
import time

from server import small


def plot(path, memory, jobs):
    """Memory over time, as a drawing."""
    seconds, most = memory[-1][0], max(mb for _, mb in memory) * 1.15
    step = max(1, len(memory) // 600)
    points = " ".join(f"{50 + 530 * moment / seconds:.1f},{180 - 165 * mb / most:.1f}" for moment, mb in memory[::step])
    grid = "".join(f'<line x1="50" x2="580" y1="{180 - 165 * mb / most:.1f}" y2="{180 - 165 * mb / most:.1f}" stroke="#ccc"/>'
                   f'<text x="44" y="{184 - 165 * mb / most:.1f}" text-anchor="end">{mb:.0f}</text>' for mb in [0, most / 4, most / 2, most * 3 / 4])
    open(path, "w").write(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 210" font-family="sans-serif" font-size="11" fill="#666">'
        f'<rect width="600" height="210" fill="#fff"/>{grid}<polyline points="{points}" fill="none" stroke="#b4541a" stroke-width="1.5"/>'
        f'<text x="50" y="200">0 s</text><text x="580" y="200" text-anchor="end">{seconds:.0f} s</text>'
        f'<text x="315" y="200" text-anchor="middle">resident MB while {jobs} jobs are made</text></svg>\n')


def load(server, models, keys, jobs, drawing=None):
    """So many jobs of so many clients at once; status calls meanwhile."""
    headers = [{"Authorization": f"Bearer {key}"} for key in keys]
    each = jobs // len(keys)
    ids = [[] for _ in keys]
    refused = [0]

    def client(at):
        for number in range(each):
            while True:
                body = small(num_frames=models[0][1], model=models[0][0], seed=at * 1000 + number)
                status, answer = server.json("POST", "/v1/videos", body, headers[at])
                if status == 200:
                    ids[at].append(answer["id"])
                    break
                assert status == 429, answer
                refused[0] += 1
                time.sleep(0.2 + random.random() / 5)

    begun = time.monotonic()
    threads = [threading.Thread(target=client, args=(at,)) for at in range(len(keys))]
    for thread in threads:
        thread.start()
    waits, memory, done_at = [], [], {}
    while len(done_at) < jobs:
        for at in range(len(keys)):
            for id in list(ids[at]):
                if id in done_at:
                    continue
                asked = time.monotonic()
                status, job = server.json("GET", f"/v1/videos/{id}", headers=headers[at])
                waits.append(time.monotonic() - asked)
                assert status == 200 and job["status"] != "failed", job
                if job["status"] == "completed":
                    done_at[id] = time.monotonic() - begun
                break
        memory.append((time.monotonic() - begun, server.memory()))
        time.sleep(0.002)
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    waits.sort()
    # Who asks for as much as the others is served as often: at every moment the counts of clients are near each other.
    order = sorted((moment, at) for at, own in enumerate(ids) for moment in (done_at[id] for id in own))
    counts, spread = [0] * len(keys), 0
    for _, at in order:
        counts[at] += 1
        busy = [count for count in counts if count < each]
        if busy:
            spread = max(spread, max(counts) - min(busy))
    tenths = [statistics.mean(mb for moment, mb in memory if part <= moment / seconds * 10 < part + 1) for part in range(10) if any(part <= moment / seconds * 10 < part + 1 for moment, _ in memory)]
    print(f"{jobs} jobs of {len(keys)} clients: {seconds:.1f} s, {refused[0]} times 429; {len(waits)} status calls: "
          f"p50 {1000 * waits[len(waits) // 2]:.1f} ms, p99 {1000 * waits[len(waits) * 99 // 100]:.1f} ms, most {1000 * waits[-1]:.1f} ms; "
          f"most that a client was ahead {spread}; memory by tenths {[round(own) for own in tenths]} MB")
    if drawing:
        plot(drawing, memory, jobs)
    # Jobs that share a run are done at once, and whoever was refused comes a little later.
    assert spread <= each / 2, f"a client was {spread} of its {each} jobs ahead of another"
    p99 = waits[len(waits) * 99 // 100]
    assert p99 < 0.05, f"a status call takes {1000 * p99:.0f} ms"
    assert tenths[-1] < 1.25 * max(tenths[1:4]), f"memory grows: {tenths}"


def kills(server, model, frames, rounds):
    """Kill and start; everything that was answered for is there, whole and the same."""
    server.start()
    status, job = server.json("POST", "/v1/videos", small(num_frames=frames, model=model))
    want = None
    assert status == 200, job
    server.wait(job["id"])
    want = server.call("GET", f"/v1/videos/{job['id']}/content")[2]
    accepted = [job["id"]]
    lost = 0
    for number in range(rounds):
        stop = threading.Event()

        def submit():
            while not stop.is_set():
                try:
                    status, job = server.json("POST", "/v1/videos", small(num_frames=frames, model=model))
                    if status == 200:
                        accepted.append(job["id"])
                    time.sleep(0.1)
                except (OSError, ValueError, http.client.HTTPException):
                    # It was killed while it answered.
                    return

        threads = [threading.Thread(target=submit) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(random.random() * 0.6)
        server.kill()
        stop.set()
        for thread in threads:
            thread.join()
        server.start()
        # A sample now, all at the end.
        for id in random.sample(accepted, min(5, len(accepted))):
            status, job = server.json("GET", f"/v1/videos/{id}")
            assert status == 200, f"round {number}: {id} is lost: {job}"
            assert job["status"] != "failed", job
            if job["status"] == "completed":
                assert server.call("GET", f"/v1/videos/{id}/content")[2] == want, f"round {number}: {id} is damaged"
    for id in accepted:
        job = server.wait(id, limit=600)
        assert job["status"] == "completed" and job["seed"] == 7, job
        if server.call("GET", f"/v1/videos/{id}/content")[2] != want:
            lost += 1
    print(f"{rounds} times kill -9: {len(accepted)} jobs were answered for, {lost} lost or damaged")
    assert lost == 0
