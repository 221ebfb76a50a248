"""A step of finetuning with Wan folders -> goldens/wan_training.safetensors.

`image` shows the first frame as channels and by the image encoder, `high` and `low` are the two experts at
levels of their own, `first_frame` gives the first latent frame clean at level 0. All see one
clip. Each with its noise, what the pipeline makes of the first frame, the loss (the mean squared error of the velocity over what
is generated) and sketches of its gradients. The folders are those of wan_folder.py.
"""

import tiny
import torch
from PIL import Image

from wan_pipeline import load

CAPTION = "a golden fox dreams under the bridge"

CASES = {
    "image": dict(folder="wan-tiny-i2v", image=True, tokens=512, level=0.6, transformer="transformer"),
    "high": dict(folder="wan-tiny-experts", tokens=512, level=0.95, transformer="transformer"),
    "low": dict(folder="wan-tiny-experts", tokens=512, level=0.3, transformer="transformer_2"),
    "first_frame": dict(
        folder="wan-tiny-ti2v", image=True, tokens=512, level=0.7, transformer="transformer"
    ),
}
FRAMES, HEIGHT, WIDTH = 5, 32, 32


def clip(seed):
    """Bytes [frames, height, width, 3] that change smoothly."""
    small = torch.rand((1, 3, 2, 3, 4), generator=tiny.generator(seed))
    large = torch.nn.functional.interpolate(small, (FRAMES, HEIGHT, WIDTH), mode="trilinear")
    return (255 * large[0]).round().to(torch.uint8).permute(1, 2, 3, 0)


@torch.no_grad()
def seen(case, pipeline, frames, noise):
    """Clean latents, text, and what the pipeline shows of the first frame."""
    vae = pipeline.vae
    pixels = frames.permute(3, 0, 1, 2).unsqueeze(0).float() / 255.0 * 2.0 - 1.0
    mean, std = (
        torch.tensor(values).view(1, -1, 1, 1, 1)
        for values in (vae.config.latents_mean, vae.config.latents_std)
    )
    found = {"latents": (vae.encode(pixels).latent_dist.mode() - mean) / std}
    text, _ = pipeline.encode_prompt(
        CAPTION, do_classifier_free_guidance=False, max_sequence_length=case["tokens"]
    )
    if case["folder"] == "wan-tiny-i2v":
        _, found["beside"] = pipeline.prepare_latents(
            pixels[:, :, 0], 1, 4, HEIGHT, WIDTH, FRAMES, torch.float32, "cpu", latents=noise
        )
        found["image"] = pipeline.encode_image(Image.fromarray(frames[0].numpy()))
    return found, text


def step(case, model, found, text, noise):
    """The loss and the gradients by parameter name."""
    level, latents = case["level"], found["latents"]
    noisy = (1.0 - level) * latents + level * noise
    call = dict(encoder_hidden_states=text, return_dict=False)
    counts = torch.ones_like(latents)
    timestep = torch.tensor([1000.0 * level])
    if case["folder"] == "wan-tiny-ti2v":
        noisy[:, :, 0], counts[:, :, 0] = latents[:, :, 0], 0.0
        _, high, wide = model.config.patch_size
        grid = torch.full((1, *latents.shape[2:]), 1000.0 * level)
        grid[:, 0] = 0.0
        timestep = grid[:, :, ::high, ::wide].reshape(1, -1)
    if "beside" in found:
        noisy = torch.cat([noisy, found["beside"]], dim=1)
        call["encoder_hidden_states_image"] = found["image"]
    model.zero_grad()
    output = model(hidden_states=noisy, timestep=timestep, **call)[0]
    loss = ((output - (noise - latents)) ** 2 * counts).sum() / counts.sum()
    loss.backward()
    # The output of a published module that no version uses has none.
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return loss.detach().reshape(1), grads


def main():
    """Write all cases into one file."""
    frames = clip(9000)
    tensors = {"frames": frames}
    for index, (name, case) in enumerate(CASES.items()):
        pipeline = load(case)
        factor = pipeline.vae_scale_factor_spatial
        noise = tiny.normal((1, 4, 2, HEIGHT // factor, WIDTH // factor), 9100 + index)
        found, text = seen(case, pipeline, frames, noise)
        loss, grads = step(case, getattr(pipeline, case["transformer"]), found, text, noise)
        print(f"{name}: loss {loss.item():.4f}, {len(grads)} gradients")
        found |= {"noise": noise, "loss": loss}
        sketches = {key: tiny.sketch(grad) for key, grad in grads.items()}
        tensors |= tiny.prefixed(name, found | tiny.prefixed("gradients", sketches))
    tiny.write(tiny.GOLDENS / "wan_training.safetensors", tensors, {"cases": CASES, "caption": CAPTION})


if __name__ == "__main__":
    main()
