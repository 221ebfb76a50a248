"""A run's curves as an offline run of Weights & Biases: `python tools/wandb/bridge.py runs/style`.

Needs `pip install wandb` and no account; `wandb sync` uploads what it leaves, whenever that is wanted. Lines that are already there are
written again, so run it once a run is over.
"""

import json
import sys
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
    import wandb

    folder = Path(sys.argv[1])
    run = wandb.init(project="moviola", name=folder.name, mode="offline")
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        run.log(numbers(record), step=record["step"])
    run.finish()


if __name__ == "__main__":
    main()
