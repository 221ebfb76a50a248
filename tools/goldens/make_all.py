"""Make every golden: `python tools/goldens/make_all.py` in a venv with requirements.txt.

With `--check` it also fails when a file's bytes have changed, which on one machine means that a
script or a library did.
"""

import argparse
import hashlib
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDENS = HERE.parents[1] / "goldens"
LIMIT = 10_000_000

# In order: the pipeline reads the folders that pixart_folder.py writes.
SCRIPTS = [
    "tokenizer.py",
    "captions.py",
    "pixart_folder.py",
    "pixart_transformer.py",
    "t5.py",
    "clip.py",
    "pictures.py",
    "lora.py",
    "vae.py",
    "wan_transformer.py",
    "pipeline.py",
    "pixart_sigma.py",
    "wan_folder.py",
    "wan_pipeline.py",
    "wan_training.py",
    "solvers.py",
    "optimizers.py",
    "dmd2.py",
    "wan_vae.py",
    "ltx2_video_vae.py",
    "ltx2_audio.py",
    "ltx2_transformer.py",
    "ltx2_text.py",
    "torch_files.py",
    "blocks.py",
    "ltx2_folder.py",
    "ltx2_pipeline.py",
    "ltx2_training.py",
    "ltx2_preprocessed.py",
    "ltx2_stages.py",
]


def check_versions():
    """Stop when an installed package is not the pinned one."""
    for line in (HERE / "requirements.txt").read_text().splitlines():
        if "==" not in line or line.startswith("#"):
            continue
        name, wanted = line.strip().split("==")
        found = importlib.metadata.version(name)
        if found.split("+")[0] != wanted:
            sys.exit(f"{name} is {found}, the goldens need {wanted}: pip install -r requirements.txt")


def run(script):
    """Run one script single-threaded; its progress bars are of no interest unless it fails."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        [sys.executable, str(HERE / script)], env=environment, stderr=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{script} failed:\n{done.stderr}")


def digests():
    """The hash of every golden by its path, the README aside."""
    files = sorted(file for file in GOLDENS.rglob("*") if file.is_file() and file.suffix != ".md")
    return {
        str(file.relative_to(GOLDENS)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def main():
    """Run all scripts, then look at the sizes and, if asked, at the bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when any file has changed")
    options = parser.parse_args()
    check_versions()
    before = digests()
    for script in SCRIPTS:
        run(script)
    after = digests()
    total = sum((GOLDENS / name).stat().st_size for name in after)
    print(f"{len(after)} files, {total} bytes")
    if total > LIMIT:
        sys.exit(f"the goldens take {total} bytes, the limit is {LIMIT}: make the models smaller")
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if options.check and changed:
        sys.exit("changed: " + ", ".join(changed))


if __name__ == "__main__":
    main()
