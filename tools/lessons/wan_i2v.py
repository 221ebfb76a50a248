"""A tiny Wan image-to-video folder for the shapes world, as diffusers saves it.

    python tools/lessons/wan_i2v.py CLIPS FOLDER

CLIPS is a folder of GIFs. Its VAE, in the shape of Wan's, learns them here in a few minutes: without one that
has learnt something a clip cannot be read back. All else is as the libraries draw it from a seed: the
transformer, which Moviola is to train, and a text encoder, which is only asked to tell words apart.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "goldens"))

import numpy
import torch
from diffusers import (
    AutoencoderKLWan,
    UniPCMultistepScheduler,
    WanImageToVideoPipeline,
    WanTransformer3DModel,
)
from diffusers.models.autoencoders.autoencoder_kl_wan import unpatchify
from PIL import Image, ImageSequence
from transformers import UMT5Config, UMT5EncoderModel

from tokenizer import json_tokenizer

LATENT, MASK = 48, 4
TEXT = 64
HEADS, WIDTH, LAYERS = 4, 32, 4


def read(path):
    """A clip as [colour, frame, row, column] from -1 to 1."""
    with Image.open(path) as clip:
        frames = [numpy.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(clip)]
    return torch.from_numpy(numpy.stack(frames)).permute(3, 0, 1, 2).float() / 127.5 - 1.0


def vae():
    """The VAE of Wan 2.2 in small, of half as many pixels to a latent in each direction."""
    return AutoencoderKLWan(
        base_dim=16, z_dim=LATENT, dim_mult=[1, 2, 2], num_res_blocks=1, temperal_downsample=[True, True],
        is_residual=True, patch_size=2, in_channels=12, out_channels=12, scale_factor_spatial=8, scale_factor_temporal=4,
        latents_mean=[0.0] * LATENT, latents_std=[1.0] * LATENT,
    )


def decoded(model, latents):
    """What a VAE makes of latents, before it is clamped: what is clamped teaches nothing."""
    model.clear_cache()
    latents, frames = model.post_quant_conv(latents), []
    for at in range(latents.shape[2]):
        model._conv_idx = [0]
        own = latents[:, :, at : at + 1]
        frames.append(
            model.decoder(own, feat_cache=model._feat_map, feat_idx=model._conv_idx, first_chunk=at == 0)
        )
    model.clear_cache()
    return unpatchify(torch.cat(frames, 2), patch_size=model.config.patch_size)


def learn(model, clips, steps, batch=8, rate=2e-3):
    """Teaches a VAE to give back what it was given."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.05)
    begun = time.time()
    for step in range(1, steps + 1):
        own = clips[torch.randint(len(clips), (batch,))]
        found = model.encode(own).latent_dist
        # A little noise: what the transformer makes is never quite a latent of the encoder.
        noisy = found.mean + 0.02 * torch.randn_like(found.mean)
        error = decoded(model, noisy) - own
        # Most of a frame is black, which is learnt soon.
        weight = 1.0 + 4.0 * (own.amax(1, keepdim=True) > -0.9)
        loss = (weight * error**2).mean() + 1e-4 * (found.mean**2).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == 1:
            decibels = -10.0 * torch.log10((error.detach() ** 2).mean() / 4.0)
            print(f"step {step}: {decibels:.1f} dB, latents {found.mean.std().item():.2f}, {time.time() - begun:.0f} s", flush=True)


def measured(model, clips):
    """The same VAE, knowing the mean and the deviation of its latents."""
    with torch.no_grad():
        latents = torch.cat([model.encode(own).latent_dist.mean for own in clips[:256].split(32)])
    mean, deviation = latents.mean((0, 2, 3, 4)), latents.std((0, 2, 3, 4)).clamp_min(1e-3)
    model.register_to_config(latents_mean=mean.tolist(), latents_std=deviation.tolist())
    return model.eval()


def text_encoder(vocabulary):
    """A UMT5 encoder as the library draws it."""
    config = UMT5Config(
        vocab_size=vocabulary, d_model=TEXT, d_kv=16, d_ff=2 * TEXT, num_layers=2, num_heads=4,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False,
    )
    return UMT5EncoderModel(config).eval()


def transformer():
    """A Wan that is shown the first picture as channels beside the noise."""
    return WanTransformer3DModel(
        patch_size=(1, 1, 1), num_attention_heads=HEADS, attention_head_dim=WIDTH,
        in_channels=2 * LATENT + MASK, out_channels=LATENT, text_dim=TEXT, freq_dim=64,
        ffn_dim=4 * HEADS * WIDTH, num_layers=LAYERS, cross_attn_norm=True, qk_norm="rms_norm_across_heads",
    )


def main():
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clips", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    clips = torch.stack([read(path) for path in sorted(options.clips.glob("*.gif"))])
    words, own = json_tokenizer(), vae()
    learn(own, clips, options.steps)
    pipeline = WanImageToVideoPipeline(
        tokenizer=words, text_encoder=text_encoder(len(words)), vae=measured(own, clips),
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0, num_train_timesteps=1000
        ),
        transformer=transformer(),
    )
    pipeline.save_pretrained(options.folder, safe_serialization=True)


if __name__ == "__main__":
    main()
