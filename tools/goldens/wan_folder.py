"""Whole tiny Wan pipeline folders, as diffusers saves them.

`goldens/wan-tiny` is text to video with UniPC and the VAE of Wan 2.1. The other kinds (image to video
with an image encoder, TI2V with the VAE of Wan 2.2, two experts) are built in the same way by the
parity script, which does not keep them.
"""

import shutil
from dataclasses import dataclass

import tiny
import torch
from diffusers import (
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
)
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    CLIPVisionModel,
    UMT5Config,
    UMT5EncoderModel,
)

from pixart_folder import randomise_t5
from tokenizer import json_tokenizer


@dataclass
class Sizes:
    """What differs between folders. `kind`: t2v, i2v, flf2v, ti2v or experts (t2v), i2v-experts."""

    kind: str
    heads: int
    head_width: int
    layers: int
    text_width: int
    vae_width: int
    latent: int
    seed: int
    image_width: int = 12
    # The parity script can also leave the weights as the libraries draw them.
    library_weights: bool = False


FOLDERS = {
    "wan-tiny": Sizes(
        kind="t2v", heads=2, head_width=12, layers=2, text_width=12, vae_width=4, latent=4, seed=300
    ),
}


def drawn(model, seed, sizes):
    """Seeded weights, or those the library drew."""
    return model.eval() if sizes.library_weights else tiny.randomise(model, seed)


def transformer(sizes, seed):
    """A Wan transformer of the folder's kind."""
    beside = sizes.latent + 4 if sizes.kind.startswith(("i2v", "flf2v")) else 0
    sees = sizes.kind in ("i2v", "flf2v")
    tokens = 2 * image_tokens() if sizes.kind == "flf2v" else None
    model = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=sizes.heads,
        attention_head_dim=sizes.head_width,
        in_channels=sizes.latent + beside,
        out_channels=sizes.latent,
        text_dim=sizes.text_width,
        freq_dim=16,
        ffn_dim=2 * sizes.heads * sizes.head_width + 3,
        num_layers=sizes.layers,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        image_dim=sizes.image_width if sees else None,
        added_kv_proj_dim=sizes.heads * sizes.head_width if sees else None,
        pos_embed_seq_len=tokens,
    )
    return drawn(model, seed, sizes)


def text_encoder(sizes, vocabulary):
    """A UMT5 encoder: gated gelu, a position bias in every layer."""
    config = UMT5Config(
        vocab_size=vocabulary, d_model=sizes.text_width, d_kv=5, d_ff=2 * sizes.text_width + 1,
        num_layers=2, num_heads=2, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
    )
    model = UMT5EncoderModel(config)
    return model.eval() if sizes.library_weights else randomise_t5(model, sizes.seed + 2)


def vae(sizes):
    """The VAE of Wan 2.1, or of Wan 2.2 for TI2V."""
    config = dict(
        base_dim=sizes.vae_width, z_dim=sizes.latent, dim_mult=[1, 2, 2, 2], num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.1 * i - 0.2 for i in range(sizes.latent)],
        latents_std=[1.0 + 0.25 * i for i in range(sizes.latent)],
    )
    if sizes.kind == "ti2v":
        config |= dict(
            is_residual=True, patch_size=2, in_channels=12, out_channels=12,
            decoder_base_dim=sizes.vae_width + 2, scale_factor_spatial=16, scale_factor_temporal=4,
        )
    return drawn(AutoencoderKLWan(**config), sizes.seed + 3, sizes)


IMAGE, PATCH = 28, 14


def image_tokens():
    """Tokens of one picture, the class token included."""
    return (IMAGE // PATCH) ** 2 + 1


def image_encoder(sizes):
    """A CLIP vision tower and its preprocessor."""
    config = CLIPVisionConfig(
        hidden_size=sizes.image_width, intermediate_size=2 * sizes.image_width, num_hidden_layers=3,
        num_attention_heads=2, image_size=IMAGE, patch_size=PATCH, hidden_act="gelu",
    )
    processor = CLIPImageProcessor(
        size={"shortest_edge": IMAGE}, crop_size={"height": IMAGE, "width": IMAGE}
    )
    return drawn(CLIPVisionModel(config), sizes.seed + 4, sizes), processor


def unipc(shift=3.0):
    """The scheduler of the Wan folders."""
    return UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=shift,
        num_train_timesteps=1000,
    )


def euler(shift=5.0):
    """The other scheduler people use with Wan."""
    return FlowMatchEulerDiscreteScheduler(shift=shift)


def build(sizes):
    """A whole pipeline with seeded random weights in float32."""
    torch.manual_seed(sizes.seed)
    words = json_tokenizer()
    parts = dict(
        tokenizer=words,
        text_encoder=text_encoder(sizes, len(words)),
        vae=vae(sizes),
        scheduler=unipc(),
        transformer=transformer(sizes, sizes.seed + 1),
    )
    if sizes.kind.endswith("experts"):
        parts |= dict(transformer_2=transformer(sizes, sizes.seed + 5), boundary_ratio=0.875)
    if sizes.kind == "ti2v":
        parts |= dict(expand_timesteps=True)
    if not sizes.kind.startswith(("i2v", "flf2v")):
        return WanPipeline(**parts)
    if sizes.kind in ("i2v", "flf2v"):
        encoder, processor = image_encoder(sizes)
        parts |= dict(image_encoder=encoder, image_processor=processor)
    return WanImageToVideoPipeline(**parts)


def main():
    """Write the folders under goldens/."""
    for name, sizes in FOLDERS.items():
        folder = tiny.GOLDENS / name
        shutil.rmtree(folder, ignore_errors=True)
        build(sizes).save_pretrained(folder, safe_serialization=True)
        for file in folder.rglob("*.safetensors"):
            file.chmod(0o644)
        total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(f"{name}: {total} bytes")


if __name__ == "__main__":
    main()
