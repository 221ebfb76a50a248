"""What the parity scripts of all families share: the command line, bounds, a run of the binary."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from diffusers.utils import logging

BOUNDS = {"f32": 1e-3, "bf16": 3e-2}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def arguments(description, steps, height, width):
    """A parser of the flags that every script takes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", type=Path, required=True, help="the moviola binary")
    parser.add_argument("--seed", type=int, default=0, help="draws sizes, weights and noise")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--height", type=int, default=height, help="rounded up to a legal size")
    parser.add_argument("--width", type=int, default=width, help="rounded up to a legal size")
    parser.add_argument("--dtypes", nargs="+", choices=list(BOUNDS), default=list(BOUNDS))
    parser.add_argument("--weights", choices=["random", "library"], default="random",
                        help="every parameter random, or as the libraries draw them")
    parser.add_argument("--folder-dtype", choices=list(DTYPES), default="f32",
                        help="what the folder stores")
    parser.add_argument("--keep", type=Path, help="write folders here and leave them")
    return parser


def call(command):
    """Run the binary; ends the script with its message if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\nexit {done.returncode}:\n{done.stderr}")


def pixel_error(found, wanted):
    """The largest error over the deviation, less the half level that 8 bits may cost."""
    if found.shape != wanted.shape:
        return float("inf")
    beyond = ((found.double() - wanted.double()).abs() - 0.5 / 255).clamp(min=0)
    return (beyond.max() / wanted.double().std()).item()


def run_matrix(options, run):
    """Call `run(options, folder)`, which counts broken bounds, in a temporary folder or the one to keep."""
    logging.set_verbosity_error()
    if not options.binary.is_file():
        sys.exit(f"no binary at {options.binary}: cargo build --release")
    with tempfile.TemporaryDirectory() as folder:
        work = options.keep or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        broken = run(options, work)
    if broken:
        sys.exit(f"{broken} bounds broken (f32 {BOUNDS['f32']}, bf16 {BOUNDS['bf16']})")
    print("all within bounds")
