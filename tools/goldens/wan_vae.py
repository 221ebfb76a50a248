"""AutoencoderKLWan both ways -> goldens/wan_vae.safetensors.

`wan21` is a tiny Wan 2.1 (widths that differ from level to level, also odd ones),
`wan22` a tiny Wan 2.2 (levels with shortcuts, a patch of two pixels, a decoder of its own width).
Latents are 5 x 3 and 1 x 3 cells. As no frame looks at a later one, the nine frames that are
decoded and encoded here also say what one and five frames give; of the decoded ones only some are
kept. Clips are not stored: `scattered` makes them, here and in the test.
"""

import math

import tiny
import torch
from diffusers import AutoencoderKLWan

# Frames of a decoded clip of nine that are kept: the first, one of each later latent frame.
KEPT = [0, 2, 7]

CASES = {
    "wan21": {
        # Norms of few channels can magnify rounding; with this seed they do not.
        "seed": 8128,
        "latent": (1, 3, 3, 5, 3),
        # Odd: half a cell more than 5 x 3 cells has no latent of its own.
        "clip": (1, 3, 9, 43, 28),
        "tiling": dict(
            tile_sample_min_height=32, tile_sample_stride_height=16,
            tile_sample_min_width=16, tile_sample_stride_width=8,
        ),
        "tiled_latent": (1, 3, 2, 5, 3),
        "tiled_clip": (1, 3, 5, 43, 24),
        "config": dict(
            base_dim=3, z_dim=3, dim_mult=[1, 2, 2, 1], num_res_blocks=1,
            temperal_downsample=[False, True, True],
            latents_mean=[0.1, -0.2, 0.3], latents_std=[1.5, 0.5, 2.0],
        ),
    },
    "wan22": {
        "seed": 9000,
        "latent": (1, 4, 3, 1, 3),
        "clip": (1, 3, 9, 48, 32),
        "tiling": dict(
            tile_sample_min_height=32, tile_sample_stride_height=16,
            tile_sample_min_width=16, tile_sample_stride_width=16,
        ),
        "tiled_latent": (1, 4, 2, 3, 2),
        # The encoder's tiles are twice as large: they count patches.
        "tiled_clip": (1, 3, 5, 80, 48),
        "config": dict(
            base_dim=2, decoder_base_dim=3, z_dim=4, dim_mult=[1, 1, 2, 2], num_res_blocks=1,
            temperal_downsample=[False, True, True], is_residual=True, patch_size=2,
            in_channels=12, out_channels=12, scale_factor_spatial=16,
            latents_mean=[0.1, -0.2, 0.3, 0.0], latents_std=[1.5, 0.5, 2.0, 1.0],
        ),
    },
}


def scattered(shape):
    """Values from -1 to 1 without any pattern that a bug could hide behind."""
    index = torch.arange(math.prod(shape), dtype=torch.int64)
    values = ((index * 7919 + 17) % 4001).to(torch.float32) / 1000.0 - 2.0
    return (values * 0.5).reshape(shape)


def build(case):
    """A model with seeded random weights whose pixels stay within -1 and 1 for the most part."""
    model = tiny.randomise(AutoencoderKLWan(**case["config"]), case["seed"])
    with torch.no_grad():
        model.decoder.conv_out.weight *= 0.5
    return model


def whole(model, case):
    """Decode a latent and encode a clip."""
    latent = tiny.normal(case["latent"], case["seed"] + 1)
    posterior = model.encode(scattered(case["clip"])).latent_dist
    clip = model.decode(latent).sample
    assert clip.shape[2] == 9 and posterior.mean.shape[2] == 3
    print(f"wan_vae: {(clip.abs() == 1).float().mean():.3f} of the pixels are cut off")
    return {
        **tiny.prefixed("weights", dict(model.named_parameters())),
        "decode.latent": latent,
        "decode.clip": clip[:, :, KEPT],
        "encode.moments": posterior.parameters,
        "encode.mean": posterior.mode(),
        "encode.std": posterior.std,
    }


def tiled(model, case):
    """Decode and encode in tiles; of the decoded clip the fifth frame is kept."""
    latent = tiny.normal(case["tiled_latent"], case["seed"] + 2)
    clip = scattered(case["tiled_clip"])
    plain = model.decode(latent).sample, model.encode(clip).latent_dist.parameters
    model.enable_tiling(**case["tiling"])
    tensors = {
        "tiled_decode.latent": latent,
        "tiled_decode.clip": model.decode(latent).sample,
        "tiled_encode.moments": model.encode(clip).latent_dist.parameters,
    }
    for whole_result, name in zip(plain, ["tiled_decode.clip", "tiled_encode.moments"]):
        print(f"wan_vae: tiling changes {name} by {(tensors[name] - whole_result).std():.3f} (std)")
    tensors["tiled_decode.clip"] = tensors["tiled_decode.clip"][:, :, 4:]
    return tensors


@torch.no_grad()
def main():
    """Write both models into one file."""
    tensors, configs = {}, {}
    for name, case in CASES.items():
        model = build(case)
        tensors |= tiny.prefixed(name, whole(model, case) | tiled(model, case))
        configs[name] = tiny.plain_config(model)
        shapes = {key: list(case[key]) for key in ("clip", "tiled_clip")}
        configs[name]["golden"] = {"kept": KEPT, "tiling": case["tiling"]} | shapes
    tiny.write(tiny.GOLDENS / "wan_vae.safetensors", tensors, configs)


if __name__ == "__main__":
    main()
