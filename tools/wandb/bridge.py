"""A run's curves as an offline run of Weights & Biases: `python tools/wandb/bridge.py runs/style`.

Needs `pip install wandb` and no account; `wandb sync` uploads what it leaves, whenever that is wanted. Lines that are already there are
written again, so run it once a run is over.
"""

import argparse
import json
from pathlib import Path


def numbers(record):
    """The curves of one line of metrics.jsonl, by name."""
    found = {**record.get("losses", {}), **record.get("scalars", {})}
    for role in record.get("roles", []):
        for key in ("rate", "gradient_norm"):
            found[f"{role['role']}/{key}"] = role[key]
    if "tokens_per_second" in record:
        found["tokens_per_second"] = record["tokens_per_second"]
    return found


def main():
    """Read the log of the run that is named and log it anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of a run, which has a metrics.jsonl")
    parser.add_argument("--project", default="moviola", help="the project to upload to")
    options = parser.parse_args()
    log = options.run / "metrics.jsonl"
    if not log.is_file():
        parser.error(f"{log} is not there; give the folder that --run of `moviola train` named")
    records = [json.loads(line) for line in log.read_text().splitlines()]

    import wandb

    run = wandb.init(project=options.project, name=options.run.resolve().name, mode="offline")
    for record in records:
        run.log(numbers(record), step=record["step"])
    run.finish()


if __name__ == "__main__":
    main()
