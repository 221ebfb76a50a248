"""Compare `moviola generate --lora` with diffusers after `load_lora_weights`.

    python tools/parity/lora_parity.py --binary target/release/moviola
    python tools/parity/lora_parity.py --binary target/release/moviola --model FOLDER --lora FILE

Without a model it makes a random Wan folder and a random LoRA that diffusers saves; with one it takes that
folder and LoRA, for instance one that `moviola export` wrote. Both sides run from one noise file in float32;
it prints the largest error of latents and frames over their standard deviation, with the LoRA and how much the
LoRA changed the latents, and exits with 1 if an error is 1e-3 or more, or if the LoRA changed nothing. Needs
tools/goldens/requirements.txt.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "goldens"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import tiny
import torch
from diffusers import DiffusionPipeline, WanPipeline
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import save_file

import wan_folder
import parity
import wan_parity
from pipeline import relative

BOUND = 1e-3
FRAMES, HEIGHT, WIDTH = 9, 48, 80


def make(work, seed):
    """A random folder and a random LoRA for it, saved by diffusers."""
    folder, lora = work / "model", work / "lora"
    sizes = wan_parity.draw_sizes(seed, "t2v", False)
    pipeline = wan_folder.build(sizes)
    pipeline.scheduler = wan_folder.unipc()
    pipeline.save_pretrained(folder)
    transformer = pipeline.transformer
    transformer.add_adapter(LoraConfig(
        r=3, lora_alpha=5, target_modules=["to_q", "to_k", "to_v", "to_out.0", "ffn.net.0.proj"],
    ))
    for index, (name, parameter) in enumerate(transformer.named_parameters()):
        if "lora_" in name:
            parameter.data = 0.3 * tiny.normal(tuple(parameter.shape), seed + index)
    WanPipeline.save_lora_weights(lora, transformer_lora_layers=get_peft_model_state_dict(transformer),
                                  transformer_lora_adapter_metadata=transformer.peft_config["default"].to_dict())
    return folder, lora / "pytorch_lora_weights.safetensors"


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--lora", type=Path)
    return parser.parse_args()


@torch.no_grad()
def main():
    """Runs both sides, with the LoRA and without."""
    options = arguments()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        folder, lora = (options.model, options.lora) if options.model else make(work, options.seed)
        pipeline = DiffusionPipeline.from_pretrained(folder, dtype=torch.float32)
        step = 2 * pipeline.vae_scale_factor_spatial
        height, width = (-(-size // step) * step for size in (HEIGHT, WIDTH))
        shape = (1, pipeline.vae.config.z_dim, (FRAMES - 1) // 4 + 1,
                 height // pipeline.vae_scale_factor_spatial, width // pipeline.vae_scale_factor_spatial)
        noise = work / "noise.safetensors"
        save_file({"noise": tiny.normal(shape, options.seed)}, noise)
        case = dict(folder=folder, frames=FRAMES, tokens=64, guidance=4.0, steps=4, height=height, width=width,
                    noise=noise)

        def load(_):
            loaded = DiffusionPipeline.from_pretrained(folder, dtype=torch.float32)
            loaded.set_progress_bar_config(disable=True)
            return loaded

        wan_parity.load = load
        plain, _ = wan_parity.reference(case)

        def load_with_lora(case):
            loaded = load(case)
            loaded.load_lora_weights(lora.parent, weight_name=lora.name)
            return loaded

        wan_parity.load = load_with_lora
        latents, frames = wan_parity.reference(case)
        found = wan_parity.moviola(options.binary, {**case, "folder": work / "out"}, "f32",
                                   model=folder, more=["--lora", lora])
    off = relative(found[0], latents), parity.pixel_error(found[1], frames)
    changed = relative(latents, plain)
    print(f"latents {off[0]:.1e}, frames {off[1]:.1e}; the LoRA moved latents by {changed:.1e}")
    sys.exit(0 if max(off) < BOUND and changed > 10 * BOUND else 1)


if __name__ == "__main__":
    main()
