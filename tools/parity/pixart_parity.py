"""Compare `moviola generate` with diffusers on random PixArt-alpha folders of awkward sizes.

    python tools/parity/pixart_parity.py --binary target/release/moviola --seed 7

For {DPM-Solver++, DDIM} x {guidance 4.5, 1.0} x {conditions on, off} x {f32, bf16} it runs both
from one noise file and prints the largest error over the standard deviation, for latents and
pixels. It exits with 1 when a bound is broken: 1e-3 in f32, 3e-2 in bf16, both against diffusers'
float32 run. Needs tools/goldens/requirements.txt.
"""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "goldens"))

import parity
import tiny
import numpy
import torch
from diffusers import PixArtAlphaPipeline
from PIL import Image
from safetensors.torch import load_file, save_file

import pixart_folder
from pipeline import decode, denoise, noise, relative, rounded

SCHEDULERS = {"dpm": pixart_folder.dpm_solver, "ddim": pixart_folder.ddim}
HEAD_WIDTHS = [16, 18, 20, 24, 36, 40, 44, 72, 88]
PROMPT = "A golden fox, dreaming  under the ancient bridge"
NEGATIVE = "blurry dark photo"


def draw_sizes(seed, conditions, library_weights):
    """Awkward but legal sizes: widths divide by 4 (positions) and, with conditions, by 3."""
    dice = random.Random(2 * seed + conditions)
    multiple = 12 if conditions else 4
    pairs = [(h, w) for h in (1, 2, 3, 5) for w in HEAD_WIDTHS if h * w % multiple == 0]
    heads, head_width = dice.choice(pairs)
    groups = dice.choice([2, 3, 4])
    levels = dice.choice([2, 3, 4])
    return pixart_folder.Sizes(
        sample_size=128 if conditions else dice.choice([16, 32, 64]),
        heads=heads,
        head_width=head_width,
        layers=dice.choice([2, 3, 4]),
        text_width=dice.choice([24, 33, 50]),
        text_heads=dice.choice([2, 3]),
        text_head_width=dice.choice([7, 16]),
        text_layers=dice.choice([2, 3]),
        vae_widths=tuple(groups * dice.choice([4, 6]) for _ in range(levels)),
        vae_groups=groups,
        seed=seed,
        library_weights=library_weights,
    )


def legal(size, pipeline):
    """The size rounded up to what both diffusers (8) and the model (patch x VAE factor) allow."""
    step = max(8, 2 * pipeline.vae_scale_factor)
    return -(-size // step) * step


def make_case(options, work, conditions, scheduler):
    """Save one folder with its noise file; returns the case without its guidance."""
    sizes = draw_sizes(options.seed, conditions, options.weights == "library")
    pipeline = pixart_folder.build(sizes)
    pipeline.scheduler = SCHEDULERS[scheduler]()
    case = {
        "prompts": [PROMPT],
        "negative": NEGATIVE,
        "steps": options.steps,
        "height": legal(options.height, pipeline),
        "width": legal(options.width, pipeline),
        "folder": work / f"{scheduler}-{'conditions' if conditions else 'plain'}",
    }
    case["noise"] = case["folder"].with_suffix(".noise.safetensors")
    save_file({"noise": noise(case, pipeline, options.seed)}, case["noise"])
    pipeline.to(parity.DTYPES[options.folder_dtype]).save_pretrained(case["folder"])
    return case, sizes


def reference(case, dtype, round_weights=False):
    """Latents and pixels of diffusers, which reads folder and noise from disk as Moviola does."""
    pipeline = PixArtAlphaPipeline.from_pretrained(case["folder"], dtype=dtype)
    pipeline.set_progress_bar_config(disable=True)
    if round_weights:
        rounded(pipeline, ("text_encoder", "transformer", "vae"))
    start = load_file(case["noise"])["noise"].to(dtype)
    latents = denoise(case, pipeline, start)
    return latents, decode(pipeline, latents)


def moviola(binary, case, dtype):
    """Latents and pixels of one run of the binary."""
    stem = case["folder"].with_suffix(f".{dtype}-{case['guidance']}")
    image, latents = f"{stem}.png", f"{stem}.latents.safetensors"
    command = [binary, "generate", "--model", case["folder"], "--prompt", PROMPT]
    command += ["--negative", NEGATIVE, "--steps", case["steps"], "--guidance", case["guidance"]]
    command += ["--height", case["height"], "--width", case["width"], "--noise", case["noise"]]
    command += ["--save-latents", latents, "--dtype", dtype, "--output", image]
    parity.call(command)
    pixels = torch.from_numpy(numpy.array(Image.open(image).convert("RGB")))
    return load_file(latents)["latents"].float(), pixels.permute(2, 0, 1)[None].float() / 255


def errors(found, wanted):
    """(latents, pixels) errors of a run of the binary against a run of diffusers."""
    if found[0].shape != wanted[0].shape:
        return float("inf"), float("inf")
    return relative(found[0], wanted[0]), parity.pixel_error(found[1], wanted[1])


def compare(options, case, label):
    """Print the rows of one folder and guidance; returns how many bounds are broken."""
    exact = reference(case, torch.float32)
    broken = 0
    for dtype in options.dtypes:
        found = moviola(options.binary, case, dtype)
        off = errors(found, exact)
        bad = not all(error < parity.BOUNDS[dtype] for error in off)
        broken += bad
        row = f"{label:28} {dtype:5} {off[0]:9.1e} {off[1]:9.1e}  {'BROKEN' if bad else 'ok':7}"
        if dtype == "bf16":
            same = errors(found, reference(case, torch.bfloat16))
            least = reference(case, torch.float32, round_weights=True)
            floor = relative(least[0], exact[0]), relative(least[1], exact[1])
            row += f" {same[0]:9.1e} {same[1]:9.1e}   {floor[0]:9.1e} {floor[1]:9.1e}"
        print(row, flush=True)
    return broken


def arguments():
    """The command line."""
    parser = parity.arguments(__doc__, steps=20, height=96, width=136)
    return parser.parse_args()


@torch.no_grad()
def run(options, work):
    """All folders and guidances; returns how many bounds are broken."""
    print(f"{'':34} {'moviola - diffusers f32':28} {'moviola - diffusers bf16':24} "
          "diffusers f32, weights bf16 - f32")
    print(f"{'case':28} {'dtype':5} {'latents':>9} {'pixels':>9}  {'bound':7}"
          f" {'latents':>9} {'pixels':>9}   {'latents':>9} {'pixels':>9}")
    broken = 0
    for conditions in (False, True):
        for scheduler in SCHEDULERS:
            case, sizes = make_case(options, work, conditions, scheduler)
            if scheduler == "dpm":
                print(f"# {case['height']} x {case['width']}, {sizes}")
            for guidance in (4.5, 1.0):
                case["guidance"] = guidance
                shown = "conditions" if conditions else "plain"
                broken += compare(options, case, f"{shown} {scheduler} {guidance}")
    return broken


def main():
    """Run the matrix in a temporary folder or in the one to keep."""
    parity.run_matrix(arguments(), run)


if __name__ == "__main__":
    main()
