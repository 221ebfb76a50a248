"""Drives `moviola serve` from outside; `cargo xtask serve-test` runs this."""

import argparse
import os
import subprocess
import tempfile
import time

import bad
import lasting
from server import Server

PARTS = ["api", "load", "kill", "bad", "schema"]


def shapes_model(moviola, root, folder):
    """A model of the shapes world that has learnt next to nothing, in the form of the quickstart's."""
    run = os.path.join(folder, "run")
    recipe = os.path.join(root, "recipes/quickstart.yaml")
    quick = ["--set", "loop.steps=2", "--set", "data.source.clips=32", "--set", "checkpoint.every=2", "--set", "models.student.rate.warmup=0"]
    subprocess.run([moviola, "train", recipe, "--run", run, *quick], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    model = os.path.join(folder, "shapes")
    subprocess.run([moviola, "export", run, "--output", model], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--moviola", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--bad", type=int, default=100_000)
    parser.add_argument("--plot")
    parser.add_argument("--schema", type=int, default=200)
    options = parser.parse_args()
    golden = lambda name: os.path.join(options.root, "goldens", name)
    with tempfile.TemporaryDirectory() as folder:
        shapes = shapes_model(options.moviola, options.root, folder)
        for part in options.only or PARTS:
            place = os.path.join(folder, part)
            os.mkdir(place)
            begun = time.monotonic()
            if part == "api":
                import api
                server = Server(options.moviola, place, [shapes, golden("wan-tiny"), golden("pixart-tiny")]).start()
                api.run(server, "shapes", "wan-tiny", "pixart-tiny")
                server.stop()
            elif part == "load":
                keys = [f"{at:016x}" for at in range(20)]
                path = os.path.join(place, "keys.txt")
                open(path, "w").write("".join(f"client{at}:{key}\n" for at, key in enumerate(keys)))
                server = Server(options.moviola, place, [shapes], "--keys", path, "--queue", "100").start()
                lasting.load(server, [("shapes", 8)], keys, options.jobs, options.plot)
                server.stop()
            elif part == "kill":
                server = Server(options.moviola, place, [shapes], "--queue", "10000")
                lasting.kills(server, "shapes", 8, options.kills)
                server.stop()
            elif part == "schema":
                import schema
                limits = ["--queue", "4", "--pixel-steps", "200000", "--receive", "2", "--idle", "5"]
                server = Server(options.moviola, place, [shapes, golden("pixart-tiny")], *limits).start()
                schema.run(server, options.schema)
                server.stop()
            else:
                server = Server(options.moviola, place, [shapes, golden("wan-tiny-i2v"), golden("pixart-tiny")], "--receive", "2", "--idle", "5").start()
                bad.run(server, options.bad)
                server.stop()
            print(f"{part}: good, {time.monotonic() - begun:.0f} s", flush=True)


main()
