"""AutoencoderKLLTX2Video both ways -> goldens/ltx2_video_vae.safetensors.

`ltx20` has what LTX-2 has: a decoder that looks both ways in time, mirrors at the border, residual steps up.
`ltx23` has what LTX-2.3 has (zeros at the border, no residual, steps of unlike factors) and a decoder that is
told a timestep. `plain` has a causal decoder, a level without a step and one that changes its width.
Clips are not stored: `scattered` makes them, here and in the test.
"""

import tiny
import torch
from diffusers import AutoencoderKLLTX2Video
from wan_vae import scattered

# Frames of a decoded clip that are kept.
KEPT = [0, 2, 7]
TIMESTEP = 0.05

CASES = {
    "ltx20": {
        # Norms of few channels can magnify rounding; with this seed they do not.
        "seed": 73,
        "latent": (1, 4, 3, 3, 2),
        "clip": (1, 3, 9, 48, 32),
        "tiling": dict(
            tile_sample_min_height=48, tile_sample_stride_height=32,
            tile_sample_min_width=48, tile_sample_stride_width=32,
        ),
        "tiled_latent": (1, 4, 2, 4, 4),
        "tiled_clip": (1, 3, 5, 64, 64),
        "config": dict(
            latent_channels=4, block_out_channels=(8, 8, 16),
            down_block_types=("LTX2VideoDownBlock3D",) * 3, layers_per_block=(1, 1, 1, 1),
            spatio_temporal_scaling=(True, True, True),
            downsample_type=("spatial", "spatiotemporal", "spatiotemporal"),
            decoder_block_out_channels=(4, 8, 16), decoder_layers_per_block=(1, 1, 1, 1),
            decoder_spatio_temporal_scaling=(True, True, True),
            upsample_type=("spatiotemporal", "spatiotemporal", "spatial"),
            upsample_factor=(1, 2, 2), decoder_inject_noise=(False,) * 4, patch_size=2, scaling_factor=0.7, decoder_causal=False,
            spatial_compression_ratio=16, temporal_compression_ratio=4,
        ),
    },
    "ltx23": {
        "seed": 62,
        "latent": (1, 4, 4, 3, 2),
        "clip": (1, 3, 7, 16, 24),
        "config": dict(
            latent_channels=4, block_out_channels=(8, 8), down_block_types=("LTX2VideoDownBlock3D",) * 2,
            layers_per_block=(1, 1, 2), spatio_temporal_scaling=True,
            downsample_type=("spatial", "temporal"),
            decoder_block_out_channels=(8, 8), decoder_layers_per_block=(1, 2, 1),
            decoder_spatio_temporal_scaling=True, upsample_type=("temporal", "spatial"),
            upsample_residual=False, upsample_factor=(2, 1), decoder_inject_noise=False,
            timestep_conditioning=True, patch_size=4, decoder_causal=False,
            decoder_spatial_padding_mode="zeros", spatial_compression_ratio=8, temporal_compression_ratio=2,
        ),
    },
    "plain": {
        "seed": 63,
        "latent": (1, 4, 4, 2, 2),
        "clip": (1, 3, 7, 8, 16),
        "config": dict(
            latent_channels=4, block_out_channels=(4, 8), down_block_types=("LTX2VideoDownBlock3D",) * 2,
            layers_per_block=(1, 1, 1), spatio_temporal_scaling=(False, True),
            downsample_type=("spatial", "spatiotemporal"),
            decoder_block_out_channels=(4, 8), decoder_layers_per_block=(1, 1, 1),
            decoder_spatio_temporal_scaling=(False, True), upsample_type=("spatiotemporal", "spatial"),
            upsample_residual=(False, True), upsample_factor=(1, 1), decoder_inject_noise=False, patch_size=2,
            encoder_causal=False, encoder_spatial_padding_mode="reflect", decoder_spatial_padding_mode="zeros",
            spatial_compression_ratio=4, temporal_compression_ratio=2,
        ),
    },
}


def build(case):
    """A model with seeded random weights and statistics, whose pixels stay within -1 and 1 for the most part."""
    model = tiny.randomise(AutoencoderKLLTX2Video(**case["config"]), case["seed"])
    channels = case["config"]["latent_channels"]
    with torch.no_grad():
        model.decoder.conv_out.conv.weight *= 0.5
        model.latents_mean.copy_(tiny.normal((channels,), case["seed"] + 3, 0.3))
        model.latents_std.copy_(1 + tiny.normal((channels,), case["seed"] + 4, 0.3).abs())
        if case["config"].get("timestep_conditioning"):
            model.decoder.timestep_scale_multiplier.fill_(970.0)
    return model


def restored(model, latent):
    """Latents of a diffusion model in the VAE's own scale, as the pipeline does it."""
    mean, std = (it.view(1, -1, 1, 1, 1) for it in (model.latents_mean, model.latents_std))
    return latent * std / model.config.scaling_factor + mean


def whole(model, case):
    """Decode a latent and encode a clip."""
    latent = tiny.normal(case["latent"], case["seed"] + 1)
    posterior = model.encode(scattered(case["clip"])).latent_dist
    temb = torch.tensor([TIMESTEP]) if model.config.timestep_conditioning else None
    clip = model.decode(restored(model, latent), temb).sample
    assert (clip.shape[2] - 1) // model.temporal_compression_ratio == latent.shape[2] - 1
    print(f"ltx2_video_vae: {(clip.abs() > 1).float().mean():.3f} of the pixels are cut off")
    kept = [index for index in KEPT if index < clip.shape[2]]
    tensors = {
        **tiny.prefixed("weights", model.state_dict()),
        "decode.latent": latent,
        "decode.clip": clip.clamp(-1, 1)[:, :, kept],
        "encode.moments": posterior.parameters,
    }
    return tensors, kept


def tiled(model, case):
    """Decode and encode in tiles; of the decoded clip the fifth frame is kept."""
    if "tiling" not in case:
        return {}
    latent = tiny.normal(case["tiled_latent"], case["seed"] + 2)
    clip = scattered(case["tiled_clip"])
    model.enable_tiling(**case["tiling"])
    return {
        "tiled_decode.latent": latent,
        "tiled_decode.clip": model.decode(restored(model, latent)).sample.clamp(-1, 1)[:, :, 4:],
        "tiled_encode.moments": model.encode(clip).latent_dist.parameters,
    }


@torch.no_grad()
def main():
    """Write all models into one file."""
    tensors, configs = {}, {}
    for name, case in CASES.items():
        model = build(case)
        made, kept = whole(model, case)
        tensors |= tiny.prefixed(name, made | tiled(model, case))
        configs[name] = tiny.plain_config(model)
        shapes = {key: list(case[key]) for key in ("clip", "tiled_clip") if key in case}
        said = {"kept": kept, "tiling": case.get("tiling"), "timestep": TIMESTEP}
        configs[name]["golden"] = said | shapes
    tiny.write(tiny.GOLDENS / "ltx2_video_vae.safetensors", tensors, configs)


if __name__ == "__main__":
    main()
