"""Compare `moviola generate` with diffusers on random Wan folders of awkward sizes.

    python tools/parity/wan_parity.py --binary target/release/moviola --seed 7

For {T2V, I2V, first and last frame, TI2V with and without a picture, two experts} x {UniPC, Euler}
it runs both from one noise file, in f32 and bf16, with guidance above and at 1 and with 1, 9 and 17
frames, and prints the largest error over the standard deviation, for latents and frames. It exits
with 1 when a bound is broken: 1e-3 in f32, 3e-2 in bf16, both against diffusers' float32 run. Needs
tools/goldens/requirements.txt.
"""

import dataclasses
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "goldens"))

import parity
import tiny
import torch
from diffusers import WanImageToVideoPipeline
from PIL import Image
from safetensors.torch import load_file, save_file

import wan_folder
from pipeline import relative

SCHEDULERS = {"unipc": wan_folder.unipc, "euler": wan_folder.euler}
PROMPT = "A golden fox,&nbsp;dreaming  under the\nancient bridge"
NEGATIVE = "blurry dark photo"

# kind, frames, guidance, which pictures are given
CASES = [
    ("t2v", 9, 5.0, []),
    ("t2v", 1, 1.0, []),
    ("t2v", 17, 3.5, []),
    ("i2v", 9, 5.0, ["image"]),
    ("i2v", 17, 1.0, ["image"]),
    ("flf2v", 9, 4.0, ["image", "last_image"]),
    ("ti2v", 9, 5.0, []),
    ("ti2v", 17, 5.0, ["image"]),
    ("ti2v", 9, 1.0, ["image"]),
    ("experts", 9, 4.0, []),
    ("i2v-experts", 9, 3.0, ["image"]),
]


def draw_sizes(seed, kind, library_weights):
    """Awkward but legal sizes: head widths are even, with rope on three axes."""
    dice = random.Random(f"{seed} {kind}")
    return wan_folder.Sizes(
        kind=kind, heads=dice.choice([1, 2, 3, 5]), head_width=dice.choice([12, 18, 20, 44, 64]),
        layers=dice.choice([2, 3]), text_width=dice.choice([14, 24, 33]),
        vae_width=dice.choice([3, 4, 6]), latent=dice.choice([4, 6, 16]), seed=seed,
        image_width=dice.choice([12, 20]), library_weights=library_weights,
    )


def picture(path, seed):
    """A PNG of awkward size with smooth and sharp parts."""
    dice = torch.Generator().manual_seed(seed)
    small = torch.rand(3, 5, 7, generator=dice)[None]
    smooth = torch.nn.functional.interpolate(small, size=(53, 37), mode="bicubic").clamp(0, 1)[0]
    smooth[:, 20:30, 5:9] = 1.0
    Image.fromarray((smooth * 255).byte().permute(1, 2, 0).numpy()).save(path)


def make_case(options, work, scheduler, entry):
    """Save one folder with its noise and pictures."""
    kind, frames, guidance, given = entry
    sizes = draw_sizes(options.seed, kind, options.weights == "library")
    if options.vae_width:
        sizes = dataclasses.replace(sizes, vae_width=options.vae_width)
    pipeline = wan_folder.build(sizes)
    pipeline.scheduler = SCHEDULERS[scheduler]()
    step = 2 * pipeline.vae_scale_factor_spatial
    height, width = (-(-size // step) * step for size in (options.height, options.width))
    folder = work / f"{kind}-{scheduler}-{frames}-{len(given)}"
    # Beside an image encoder, diffusers counts text tokens as if there were always 512.
    tokens = 512 if kind in ("i2v", "flf2v") else 64
    case = dict(kind=kind, frames=frames, tokens=tokens, guidance=guidance, steps=options.steps, folder=folder,
                height=height, width=width, noise=folder.with_suffix(".noise.safetensors"))
    latent = pipeline.vae.config.z_dim
    factor = pipeline.vae_scale_factor_spatial
    shape = (1, latent, (frames - 1) // 4 + 1, height // factor, width // factor)
    save_file({"noise": tiny.normal(shape, options.seed)}, case["noise"])
    pipeline.to(parity.DTYPES[options.folder_dtype]).save_pretrained(folder)
    for index, name in enumerate(given):
        case[name] = folder.with_suffix(f".{name}.png")
        picture(case[name], options.seed + index)
    return case


def load(case):
    """diffusers' pipeline in float32; TI2V with a picture is another class over the same folder."""
    from diffusers import DiffusionPipeline

    kind = WanImageToVideoPipeline if "image" in case else DiffusionPipeline
    pipeline = kind.from_pretrained(case["folder"], dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def reference(case):
    """Latents and frames [frames, height, width, 3] of diffusers."""
    pipeline = load(case)
    call = dict(
        prompt=PROMPT, negative_prompt=NEGATIVE, height=case["height"], width=case["width"],
        num_frames=case["frames"], num_inference_steps=case["steps"],
        guidance_scale=case["guidance"], max_sequence_length=case["tokens"],
        latents=load_file(case["noise"])["noise"],
    )
    for name in ("image", "last_image"):
        if name in case:
            call[name] = Image.open(case[name]).convert("RGB")
    latents = pipeline(**call, output_type="latent").frames
    std = torch.tensor(pipeline.vae.config.latents_std).view(1, -1, 1, 1, 1)
    mean = torch.tensor(pipeline.vae.config.latents_mean).view(1, -1, 1, 1, 1)
    video = pipeline.vae.decode(latents * std + mean, return_dict=False)[0]
    return latents, pipeline.video_processor.postprocess_video(video, "pt")[0].permute(0, 2, 3, 1)


def moviola(binary, case, dtype, model=None, more=()):
    """Latents and frames of one run of the binary; files go beside the folder of the case."""
    stem = f"{case['folder']}.{dtype}-{case['guidance']}"
    output, latents = f"{stem}.safetensors", f"{stem}.latents.safetensors"
    command = [binary, "generate", "--model", model or case["folder"], "--prompt", PROMPT, *more]
    command += ["--negative", NEGATIVE, "--steps", case["steps"], "--guidance", case["guidance"]]
    command += ["--height", case["height"], "--width", case["width"], "--frames", case["frames"]]
    command += ["--max-tokens", case["tokens"], "--noise", case["noise"], "--save-latents", latents]
    command += ["--dtype", dtype, "--output", output]
    for name, flag in (("image", "--image"), ("last_image", "--last-image")):
        command += [flag, case[name]] if name in case else []
    parity.call(command)
    return load_file(latents)["latents"].float(), load_file(output)["frames"]


def compare(options, case, label):
    """Print the rows of one case; returns how many bounds are broken."""
    latents, frames = reference(case)
    broken = 0
    for dtype in options.dtypes:
        found = moviola(options.binary, case, dtype)
        off = (
            relative(found[0], latents) if found[0].shape == latents.shape else float("inf"),
            parity.pixel_error(found[1], frames),
        )
        bad = not all(error < parity.BOUNDS[dtype] for error in off)
        broken += bad
        verdict = "BROKEN" if bad else "ok"
        print(f"{label:40} {dtype:5} {off[0]:9.1e} {off[1]:9.1e}  {verdict}", flush=True)
    return broken


def arguments():
    """The command line."""
    parser = parity.arguments(__doc__, steps=8, height=48, width=80)
    parser.add_argument("--kinds", nargs="+", help="only these kinds")
    parser.add_argument("--vae-width", type=int, help="channels of the VAE instead of a few")
    return parser.parse_args()


@torch.no_grad()
def run(options, work):
    """All cases; returns how many bounds are broken."""
    print(f"{'case':40} {'dtype':5} {'latents':>9} {'frames':>9}")
    broken = 0
    for entry in CASES:
        kind, frames, guidance, given = entry
        if options.kinds and kind not in options.kinds:
            continue
        for scheduler in SCHEDULERS:
            case = make_case(options, work, scheduler, entry)
            label = f"{kind} {scheduler}, {frames} frames, guidance {guidance}, {len(given)} pictures"
            broken += compare(options, case, label)
    return broken


def main():
    """Run the matrix in a temporary folder or in the one to keep."""
    parity.run_matrix(arguments(), run)


if __name__ == "__main__":
    main()
