"""Read a run's event files with the real TensorBoard and compare them with its metrics.jsonl.

    cargo run -p journal --example interrupted_run -- FOLDER
    python tools/parity/tensorboard_readback.py --run FOLDER

Both of TensorBoard's Python readers must show, for every name, exactly the steps of the log with the
values of the log rounded to float32: no step of a killed process twice, none missing. With --server the
same is asked of the data server that the `tensorboard` command uses where it is installed. It exits with
1 when something differs. Needs the package `tensorboard` (tried with the version that it prints).
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tensorboard
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.util import tensor_util


def expected(run):
    """name -> [(step, value)] as the log tells it, named as in `Step::scalars`."""
    found = {}

    def add(name, step, value):
        found.setdefault(name, []).append((step, float("nan") if value is None else value))

    for text in (run / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        step = line["step"]
        for name, value in line.get("scalars", {}).items():
            add(name, step, value)
        for name, value in line.get("losses", {}).items():
            add(f"loss/{name}", step, value)
        for bucket in line.get("buckets", []):
            levels = f"{bucket['from']:.2f}-{bucket['to']:.2f}"
            add(f"loss_by_level/{bucket['loss']}/{levels}", step, bucket["mean"])
        for role in line.get("roles", []):
            add(f"rate/{role['role']}", step, role["rate"])
            add(f"gradient_norm/{role['role']}", step, role["gradient_norm"])
        for speed in ("samples_per_second", "tokens_per_second", "share_of_peak"):
            if speed in line:
                add(f"speed/{speed}", step, line[speed])
    return found


def by_accumulator(folder):
    """What the classic reader holds."""
    everything = {event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0}
    reader = event_accumulator.EventAccumulator(str(folder), size_guidance=everything)
    reader.Reload()
    tags = reader.Tags()[event_accumulator.SCALARS]
    return {tag: [(point.step, point.value) for point in reader.Scalars(tag)] for tag in tags}


def by_plugin_accumulator(folder):
    """What the reader behind the dashboards holds."""
    everything = {"scalars": 0}
    reader = plugin_event_accumulator.EventAccumulator(str(folder), tensor_size_guidance=everything)
    reader.Reload()
    tags = reader.Tags()[plugin_event_accumulator.TENSORS]
    value = lambda point: float(tensor_util.make_ndarray(point.tensor_proto))
    return {tag: [(point.step, value(point)) for point in reader.Tensors(tag)] for tag in tags}


def by_server(folder):
    """What the data server holds, asked over its own protocol."""
    import grpc
    import tensorboard_data_server
    from tensorboard.data import grpc_provider
    from tensorboard.context import RequestContext

    with tempfile.TemporaryDirectory() as scratch:
        port_file = Path(scratch) / "port"
        server = subprocess.Popen(
            [tensorboard_data_server.server_binary(), f"--logdir={folder}", "--reload=once", "--port=0",
             f"--port-file={port_file}", "--samples-per-plugin=scalars=all"], stdin=subprocess.DEVNULL)
        try:
            while not (port_file.exists() and port_file.read_text().endswith("\n")):
                time.sleep(0.1)
            address = f"localhost:{port_file.read_text().strip()}"
            stub = grpc_provider.make_stub(grpc.insecure_channel(address))
            provider = grpc_provider.GrpcDataProvider(address, stub)
            return wait_for_scalars(provider, RequestContext())
        finally:
            server.terminate()
            server.wait()


def wait_for_scalars(provider, context):
    """Asks until the answer stays the same, for the server reads while it answers."""
    earlier = None
    while True:
        runs = provider.read_scalars(
            context, experiment_id="", plugin_name="scalars", downsample=1_000_000)
        found = {tag: [(point.step, point.value) for point in points]
                 for tags in runs.values() for tag, points in tags.items()}
        if found and str(found) == earlier:
            return found
        earlier = str(found)
        time.sleep(0.5)


def rounded(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def same(left, right):
    return left == right or (left != left and right != right)


def differences(want, got):
    """What a reader shows that the log does not say, or the other way round."""
    found = [f"{tag}: only in the {'log' if tag in want else 'event files'}" for tag in want.keys() ^ got.keys()]
    for tag in sorted(want.keys() & got.keys()):
        steps, shown = [step for step, _ in want[tag]], [step for step, _ in got[tag]]
        if steps != shown:
            found.append(f"{tag}: {len(shown)} steps instead of {len(steps)}")
            continue
        wrong = [step for (step, value), (_, other) in zip(want[tag], got[tag])
                 if not same(rounded(value), other)]
        if wrong:
            found.append(f"{tag}: another value at step {wrong[0]} and {len(wrong) - 1} more")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="the run's folder")
    parser.add_argument("--server", action="store_true", help="ask the data server too")
    args = parser.parse_args()
    want = expected(args.run)
    readers = [by_accumulator, by_plugin_accumulator] + ([by_server] if args.server else [])
    print(f"tensorboard {tensorboard.__version__}: {len(want)} names, "
          f"{sum(map(len, want.values()))} points, "
          f"{len(list((args.run / 'tensorboard').iterdir()))} event files")
    is_good = bool(want)
    for reader in readers:
        found = differences(want, reader(args.run / "tensorboard"))
        is_good &= not found
        print(f"{reader.__name__}: {'the same' if not found else 'differs'}", *found, sep="\n  ")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
