"""Whole runs of `moviola generate` beside the same runs of diffusers, on the same cores.

    python tools/bench/whole_runs.py --binary target/release/moviola --threads 2

Makes one random folder per case, then starts both sides as new processes in turns, from the same
noise file. Prints, as a Markdown table, the best time from the start of the process to the beginning
of its first denoising step, the best time of the whole run, and the peak of its resident memory.
Needs tools/bench/requirements.txt.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "goldens"))

HERE = Path(__file__).resolve().parent
PROMPT = "a golden fox, dreaming under the ancient bridge"


def pixart_folder(path, layers):
    """PixArt-XL's width and VAE with fewer layers, and a small text encoder."""
    import torch
    from diffusers import AutoencoderKL
    import pixart_folder

    sizes = pixart_folder.Sizes(
        sample_size=64, heads=16, head_width=72, layers=layers, text_width=512, text_heads=8,
        text_head_width=64, text_layers=4, vae_widths=(8, 8, 8, 8), vae_groups=2, seed=1,
        library_weights=True,
    )
    torch.manual_seed(0)
    pipeline = pixart_folder.build(sizes)
    pipeline.vae = AutoencoderKL(
        block_out_channels=(128, 256, 512, 512), down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=2, latent_channels=4,
        sample_size=512, scaling_factor=0.18215,
    ).eval()
    pipeline.save_pretrained(path)
    return (1, 4, 64, 64)


def wan_folder(path, layers):
    """Wan-1.3B's width and VAE with fewer layers, and a small text encoder."""
    import torch
    from diffusers import AutoencoderKLWan, WanTransformer3DModel
    import wan_folder

    sizes = wan_folder.Sizes(
        kind="t2v", heads=1, head_width=12, layers=1, text_width=512, vae_width=4, latent=16,
        seed=1, library_weights=True,
    )
    torch.manual_seed(0)
    pipeline = wan_folder.build(sizes)
    pipeline.transformer = WanTransformer3DModel(
        num_attention_heads=12, attention_head_dim=128, ffn_dim=8960, num_layers=layers,
        text_dim=512,
    ).eval()
    pipeline.vae = AutoencoderKLWan().eval()
    pipeline.save_pretrained(path)
    return (1, 16, 3, 30, 40)


# name -> (maker of the folder, diffusers class, arguments both sides take)
CASES = {
    "PixArt-XL width, 8 layers, 512 x 512, 2 steps, guidance 4.5": (
        lambda path: pixart_folder(path, 8), "PixArtAlphaPipeline",
        {"steps": 2, "guidance": 4.5, "height": 512, "width": 512},
    ),
    "Wan-1.3B width, 4 layers, 9 frames of 240 x 320, 2 steps, guidance 5": (
        lambda path: wan_folder(path, 4), "WanPipeline",
        {"steps": 2, "guidance": 5.0, "height": 240, "width": 320, "frames": 9},
    ),
}


def prepare(work, name):
    """The folder and the noise file of a case."""
    import torch
    from safetensors.torch import save_file

    make, _, _ = CASES[name]
    shape = make(work / "model")
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    save_file({"noise": noise}, work / "noise.safetensors")


def ours(binary, threads, work, arguments):
    """The command line of our side."""
    command = [binary, "generate", "--model", work / "model", "--prompt", PROMPT]
    command += ["--noise", work / "noise.safetensors", "--threads", threads]
    command += ["--output", work / "ours.png"]
    for key, value in arguments.items():
        command += [f"--{key}", value]
    return [str(word) for word in command]


def theirs(threads, work, name):
    """The command line of the other side: this file, run as the script a user would write."""
    command = [sys.executable, __file__, "--threads", threads, "--diffusers", work, "--case", name]
    return [str(word) for word in command]


def run_diffusers(work, name, threads):
    """What a user of diffusers writes; reports when the first step began, on the wall clock."""
    import diffusers
    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(threads)
    _, pipeline_class, arguments = CASES[name]
    pipeline = getattr(diffusers, pipeline_class).from_pretrained(work / "model")
    first = []
    pipeline.transformer.register_forward_pre_hook(lambda *_: first.append(time.time()))
    call = {
        "prompt": PROMPT, "num_inference_steps": arguments["steps"],
        "guidance_scale": arguments["guidance"], "height": arguments["height"],
        "width": arguments["width"], "latents": load_file(work / "noise.safetensors")["noise"],
    }
    if pipeline_class == "PixArtAlphaPipeline":
        call |= {"use_resolution_binning": False}
        pipeline(**call).images[0].save(work / "theirs.png")
    else:
        call |= {"num_frames": arguments["frames"], "output_type": "pil"}
        for index, frame in enumerate(pipeline(**call).frames[0]):
            frame.save(work / f"theirs-{index}.png")
    (work / "first.json").write_text(json.dumps(first[0]))


def measure(command, work, side):
    """Seconds to the first step, seconds in all and peak bytes of one process."""
    began = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    total = time.time() - began
    if status != 0:
        sys.exit(f"{' '.join(command)} failed:\n{error.decode()}")
    if side == "ours":
        first = json.loads((work / "ours.json").read_text())["seconds_to_first_step"]
    else:
        first = json.loads((work / "first.json").read_text()) - began
    return first, total, usage.ru_maxrss * 1024


def compare(name, options, work):
    """One row of the table per quantity."""
    prepare(work, name)
    arguments = CASES[name][2]
    commands = {
        "ours": ours(options.binary, options.threads, work, arguments),
        "theirs": theirs(options.threads, work, name),
    }
    best = {side: [float("inf")] * 3 for side in commands}
    for _ in range(options.rounds):
        for side, command in commands.items():
            found = measure(command, work, side)
            best[side] = [min(a, b) for a, b in zip(best[side], found)]
    print(f"| {name} | | | |")
    for row, what in enumerate(["start to first step, s", "whole run, s", "peak memory, GB"]):
        scale = 1e-9 if row == 2 else 1.0
        a, b = best["ours"][row] * scale, best["theirs"][row] * scale
        print(f"| {what} | {a:.3g} | {b:.3g} | {a / b:.2f} |", flush=True)


def main():
    """The table, or (as the other side) one run of diffusers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", type=Path, help="the moviola binary")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side; the best counts")
    parser.add_argument("--case", help="only this one")
    parser.add_argument("--diffusers", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.diffusers:
        return run_diffusers(options.diffusers, options.case, options.threads)
    print("| whole run | ours | diffusers | ratio |\n|---|---|---|---|")
    for name in [options.case] if options.case else CASES:
        with tempfile.TemporaryDirectory() as folder:
            compare(name, options, Path(folder))


if __name__ == "__main__":
    main()
