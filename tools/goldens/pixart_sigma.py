"""A tiny PixArt-Sigma folder and whole runs of it -> goldens/pixart-sigma-tiny, goldens/pixart_sigma_pipeline.safetensors.

PixArt-Sigma is PixArt-alpha's transformer without resolution conditions, with captions of 300 tokens.
"""

import shutil

import pipeline as alpha
import tiny
import torch
from diffusers import PixArtSigmaPipeline, PixArtTransformer2DModel
from pixart_folder import Sizes, dpm_solver, text_encoder, vae

from tokenizer import json_tokenizer

FOLDER = "pixart-sigma-tiny"
SIZES = Sizes(
    sample_size=128, heads=2, head_width=8, layers=2, text_width=12, text_heads=2,
    text_head_width=6, text_layers=1, vae_widths=(4, 6, 8), vae_groups=2, seed=300,
)

# 300 tokens are more than PixArt-alpha reads: the long prompt tells them apart.
CASES = {
    "sigma_dpm_8_guided": dict(
        folder=FOLDER, scheduler="dpm", steps=8, guidance=4.5, height=32, width=24,
        prompts=[alpha.PROMPT, 3 * alpha.LONG], negative=alpha.NEGATIVE,
    ),
    "sigma_dpm_2_unguided": dict(
        folder=FOLDER, scheduler="dpm", steps=2, guidance=1.0, height=24, width=40,
        prompts=[alpha.PROMPT], negative="",
    ),
}


def transformer():
    """As all published ones: a sample size of 128 without the conditions that alpha has there."""
    width = SIZES.heads * SIZES.head_width
    model = PixArtTransformer2DModel(
        sample_size=SIZES.sample_size,
        num_layers=SIZES.layers,
        num_attention_heads=SIZES.heads,
        attention_head_dim=SIZES.head_width,
        in_channels=4,
        out_channels=8,
        patch_size=2,
        cross_attention_dim=width,
        caption_channels=SIZES.text_width,
        use_additional_conditions=False,
    )
    return tiny.randomise(model, SIZES.seed + 1)


def save():
    """Write the folder."""
    torch.manual_seed(SIZES.seed)
    words = json_tokenizer()
    whole = PixArtSigmaPipeline(
        tokenizer=words,
        text_encoder=text_encoder(SIZES, len(words)),
        vae=vae(SIZES),
        transformer=transformer(),
        scheduler=dpm_solver(),
    )
    folder = tiny.GOLDENS / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    whole.save_pretrained(folder, safe_serialization=True)
    for file in folder.rglob("*.safetensors"):
        file.chmod(0o644)


@torch.no_grad()
def main():
    """Write the folder, then all cases into one file."""
    save()
    tensors = {}
    for index, (name, case) in enumerate(CASES.items()):
        whole = PixArtSigmaPipeline.from_pretrained(tiny.GOLDENS / FOLDER)
        whole.set_progress_bar_config(disable=True)
        start = alpha.noise(case, whole, 6500 + index)
        latents = alpha.denoise(case, whole, start)
        tensors |= {
            f"{name}.noise": start,
            f"{name}.latents": latents,
            f"{name}.pixels": alpha.decode(whole, latents),
        }
    tiny.write(tiny.GOLDENS / "pixart_sigma_pipeline.safetensors", tensors, {"cases": CASES})


if __name__ == "__main__":
    main()
