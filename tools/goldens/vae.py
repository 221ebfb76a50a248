"""AutoencoderKL both ways -> goldens/vae.safetensors.

`quant`: three levels, attention in the middle, both quantisation convolutions. `bare`: two levels,
neither convolution nor attention, two layers per block. Images and latents are not square and
their sizes are odd where the model allows it. `quant` is also decoded and encoded in tiles.
"""

import tiny
import torch
from diffusers import AutoencoderKL

CASES = {
    "quant": {
        "seed": 4000,
        "latent": (2, 4, 5, 7),
        "image": (2, 3, 20, 28),
        "config": dict(
            block_out_channels=(4, 8, 12), layers_per_block=1, norm_num_groups=2, sample_size=32,
            use_quant_conv=True, use_post_quant_conv=True, mid_block_add_attention=True,
        ),
    },
    "bare": {
        "seed": 5000,
        "latent": (1, 4, 3, 9),
        # An odd image: the down-sampling pads below and on the right only.
        "image": (1, 3, 13, 10),
        "config": dict(
            block_out_channels=(6, 9), layers_per_block=2, norm_num_groups=3, sample_size=16,
            use_quant_conv=False, use_post_quant_conv=False, mid_block_add_attention=False,
        ),
    },
}


def build(case):
    """A model with seeded random weights."""
    levels = len(case["config"]["block_out_channels"])
    model = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        latent_channels=4,
        scaling_factor=0.18215,
        **case["config"],
    )
    return tiny.randomise(model, case["seed"])


def both_ways(model, case):
    """Decode a latent and encode an image."""
    latent = tiny.normal(case["latent"], case["seed"] + 1, 3.0)
    image = tiny.normal(case["image"], case["seed"] + 2, 0.5).clamp(-1, 1)
    posterior = model.encode(image).latent_dist
    return {
        **tiny.prefixed("weights", dict(model.named_parameters())),
        "decode.latent": latent,
        "decode.image": model.decode(latent).sample,
        "encode.image": image,
        "encode.moments": posterior.parameters,
        "encode.mean": posterior.mean,
        "encode.std": posterior.std,
    }


def tiled(model, seed):
    """Decode and encode in tiles of 8 latent cells (32 pixels) that overlap by a quarter."""
    model.enable_tiling()
    latent = tiny.normal((1, 4, 17, 11), seed + 3, 3.0)
    image = tiny.normal((1, 3, 44, 60), seed + 4, 0.5).clamp(-1, 1)
    tensors = {
        "tiled_decode.latent": latent,
        "tiled_decode.image": model.decode(latent).sample,
        "tiled_encode.image": image,
        "tiled_encode.moments": model.encode(image).latent_dist.parameters,
    }
    tiling = {
        "tile_sample_min_size": model.tile_sample_min_size,
        "tile_latent_min_size": model.tile_latent_min_size,
        "tile_overlap_factor": model.tile_overlap_factor,
    }
    model.disable_tiling()
    seams = (tensors["tiled_decode.image"] - model.decode(latent).sample).std()
    print(f"vae: tiling changes the image by {seams:.2f} (std)")
    return tensors, tiling


@torch.no_grad()
def main():
    """Write all cases into one file."""
    tensors, configs = {}, {}
    for name, case in CASES.items():
        model = build(case)
        made = both_ways(model, case)
        configs[name] = tiny.plain_config(model)
        if name == "quant":
            more, configs[name]["tiling"] = tiled(model, case["seed"])
            made |= more
        tensors |= tiny.prefixed(name, made)
    tiny.write(tiny.GOLDENS / "vae.safetensors", tensors, configs)


if __name__ == "__main__":
    main()
