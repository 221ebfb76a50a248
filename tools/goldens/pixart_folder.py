"""Whole tiny PixArt-alpha pipeline folders, as diffusers saves them.

`goldens/pixart-tiny` has no resolution conditions and a VAE of factor 8;
`goldens/pixart-tiny-conditions` has them (sample_size 128) and a VAE of factor 4.
The parity script builds its larger folders with the same `build`.
"""

import json
import shutil
from dataclasses import dataclass

import tiny
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    PixArtAlphaPipeline,
    PixArtTransformer2DModel,
)
from transformers import T5Config, T5EncoderModel

from tokenizer import json_tokenizer


@dataclass
class Sizes:
    """The sizes that differ between folders; 128 as `sample_size` switches the conditions on."""

    sample_size: int
    heads: int
    head_width: int
    layers: int
    text_width: int
    text_heads: int
    text_head_width: int
    text_layers: int
    vae_widths: tuple
    vae_groups: int
    seed: int
    # The parity script can also leave the weights as the libraries draw them.
    library_weights: bool = False


FOLDERS = {
    "pixart-tiny": Sizes(
        sample_size=16, heads=4, head_width=9, layers=2, text_width=20, text_heads=3,
        text_head_width=6, text_layers=2, vae_widths=(4, 8, 8, 12), vae_groups=2, seed=100,
    ),
    "pixart-tiny-conditions": Sizes(
        sample_size=128, heads=2, head_width=18, layers=2, text_width=28, text_heads=2,
        text_head_width=10, text_layers=1, vae_widths=(4, 6, 10), vae_groups=2, seed=200,
    ),
}


def transformer(sizes):
    """A PixArt transformer that predicts noise and variance, as all PixArt-alpha ones do."""
    width = sizes.heads * sizes.head_width
    model = PixArtTransformer2DModel(
        sample_size=sizes.sample_size,
        num_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        attention_head_dim=sizes.head_width,
        in_channels=4,
        out_channels=8,
        patch_size=2,
        cross_attention_dim=width,
        caption_channels=sizes.text_width,
    )
    return model.eval() if sizes.library_weights else tiny.randomise(model, sizes.seed + 1)


def text_encoder(sizes, vocabulary):
    """A T5 v1.1 encoder (gated gelu) whose attention width is not its model width."""
    config = T5Config(
        vocab_size=vocabulary,
        d_model=sizes.text_width,
        d_kv=sizes.text_head_width,
        d_ff=2 * sizes.text_width + 3,
        num_layers=sizes.text_layers,
        num_heads=sizes.text_heads,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
    )
    model = T5EncoderModel(config)
    return model.eval() if sizes.library_weights else randomise_t5(model, sizes.seed + 2)


def randomise_t5(model, seed):
    """Seeded T5 weights: rows of the embedding and position biases of size one.

    T5 attention has no 1/sqrt(width), so its queries are drawn smaller to keep softmax soft.
    """
    tiny.randomise(model, seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("shared.weight") or name.endswith("relative_attention_bias.weight"):
                parameter.mul_(parameter.shape[1] ** 0.5)
            elif name.endswith(".q.weight"):
                parameter.mul_(model.config.d_kv**-0.5)
    return model


def vae(sizes):
    """An AutoencoderKL with attention in its middle and both quantisation convolutions."""
    levels = len(sizes.vae_widths)
    model = AutoencoderKL(
        block_out_channels=sizes.vae_widths,
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=sizes.vae_groups,
        sample_size=64,
        scaling_factor=0.18215,
    )
    return model.eval() if sizes.library_weights else tiny.randomise(model, sizes.seed + 3)


def dpm_solver():
    """The scheduler of the PixArt-alpha hub folder."""
    return DPMSolverMultistepScheduler(
        beta_start=0.0001,
        beta_end=0.02,
        beta_schedule="linear",
        solver_order=2,
        algorithm_type="dpmsolver++",
        solver_type="midpoint",
        lower_order_final=True,
        timestep_spacing="linspace",
    )


def ddim():
    """A DDIM scheduler over the same betas; PixArt latents must not be clipped."""
    return DDIMScheduler(
        beta_start=0.0001,
        beta_end=0.02,
        beta_schedule="linear",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
    )


def build(sizes):
    """A whole pipeline with seeded random weights in float32."""
    torch.manual_seed(sizes.seed)
    words = json_tokenizer()
    return PixArtAlphaPipeline(
        tokenizer=words,
        text_encoder=text_encoder(sizes, len(words)),
        vae=vae(sizes),
        transformer=transformer(sizes),
        scheduler=dpm_solver(),
    )


def legacy_config(model):
    """The transformer's config in the older form that the PixArt-alpha hub folders still have."""
    old = {key: value for key, value in model.config.items() if not key.startswith("_")}
    del old["interpolation_scale"], old["use_additional_conditions"]
    old |= {
        "_class_name": "Transformer2DModel",
        "_diffusers_version": "0.22.0.dev0",
        "double_self_attention": False,
        "num_vector_embeds": None,
        "only_cross_attention": False,
        "use_linear_projection": False,
    }
    return old


def check_legacy(model, config):
    """The older config must make the same model in the real diffusers."""
    twin = PixArtTransformer2DModel.from_config(config)
    twin.load_state_dict(model.state_dict())
    assert twin.use_additional_conditions == model.use_additional_conditions


def save(name, sizes):
    """Write one folder under goldens/."""
    folder = tiny.GOLDENS / name
    shutil.rmtree(folder, ignore_errors=True)
    pipeline = build(sizes)
    pipeline.save_pretrained(folder, safe_serialization=True)
    for file in folder.rglob("*.safetensors"):
        file.chmod(0o644)
    config = legacy_config(pipeline.transformer)
    check_legacy(pipeline.transformer, config)
    write_config(f"{name}.legacy_transformer.json", config)
    total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{name}: {total} bytes")


def write_config(name, config):
    """Write one JSON file under goldens/configs."""
    path = tiny.GOLDENS / "configs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main():
    """Write both folders and the configs that tests put in place of theirs."""
    for name, sizes in FOLDERS.items():
        save(name, sizes)
    write_config("ddim_scheduler.json", json.loads(ddim().to_json_string()))


if __name__ == "__main__":
    main()
