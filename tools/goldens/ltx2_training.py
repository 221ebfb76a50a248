"""A step of finetuning with LTX-2 folders -> goldens/ltx2_training.safetensors.

Video and sound at levels of their own: `both` and `later` by the rule of the original for the levels where the streams
meet (own timesteps for scale and shift, the other's level for the gate), `other` and `own` by those of diffusers. The
first latent frame of their video is given clean. `sound_of_video` is given the video, `video_of_sound` the sound, and
`sound` has no video. Each with latents and noise, the loss (the mean squared error of the velocity over what is
generated, of both tracks together), and three projections of every gradient, row by row in the order of the
parameters' names; zeros where there is none. The folders are those of ltx2_folder.py.
"""

import tiny
import torch
from diffusers import LTX2Pipeline

from ltx2_transformer import original

CAPTION = "a golden fox dreams under the bridge"
FRAMES, SIDE, SOUND, RATE = 2, 2, 5, 12.0

CASES = {
    "both": dict(folder="ltx2-tiny", rule="original", level=0.7, audio_level=0.35, first=True),
    "other": dict(folder="ltx2-tiny", rule="other", level=0.7, audio_level=0.35, first=True),
    "own": dict(folder="ltx23-tiny", rule="own", level=0.6, audio_level=0.9, first=True),
    "later": dict(folder="ltx23-tiny", rule="original", level=0.6, audio_level=0.9, first=True),
    "sound_of_video": dict(folder="ltx2-tiny", rule="original", level=0.0, audio_level=0.8, given="video"),
    "video_of_sound": dict(folder="ltx23-tiny", rule="original", level=0.5, audio_level=0.0, given="audio"),
    "sound": dict(folder="ltx23-tiny", rule="original", level=0.0, audio_level=0.4, alone=True),
}


def packed(latents):
    """[1, C, f, h, w] or [1, C, t, bins] as tokens."""
    if latents.dim() == 5:
        return latents.flatten(2).transpose(1, 2)
    return latents.permute(0, 2, 1, 3).flatten(2)


@torch.no_grad()
def captions(pipeline):
    """What each stream reads, as the pipeline makes it."""
    states, mask, *_ = pipeline.encode_prompt(CAPTION, do_classifier_free_guidance=False, max_sequence_length=1024)
    video, audio, _ = pipeline.connectors(states, mask, padding_side=pipeline.tokenizer.padding_side)
    return video, audio


def noisy(latents, noise, level, fixed):
    """Tokens at a level, fixed ones clean, and what should be answered."""
    mixed = (1.0 - level) * latents + level * noise
    return torch.where(fixed, latents, mixed), noise - latents


def step(case, pipeline, found):
    """The loss, and the gradients by parameter name."""
    model, given = pipeline.transformer, case.get("given")
    tokens = {key: packed(value) for key, value in found.items()}
    count = tokens["latents"].shape[1]
    fixed = torch.zeros(1, count, 1, dtype=torch.bool)
    if case.get("first"):
        fixed[:, : SIDE * SIDE] = True
    if given == "video":
        fixed[:] = True
    heard = torch.full((1, SOUND, 1), given == "audio")
    video, video_target = noisy(tokens["latents"], tokens["noise"], case["level"], fixed)
    audio, audio_target = noisy(tokens["audio_latents"], tokens["audio_noise"], case["audio_level"], heard)
    levels = {"sigma": case["level"], "audio_sigma": case["audio_level"]}
    text, audio_text = captions(pipeline)
    values = {
        "hidden_states": video, "audio_hidden_states": audio,
        "encoder_hidden_states": text, "audio_encoder_hidden_states": audio_text,
        "timestep": torch.where(fixed[..., 0], 0.0, 1000.0 * case["level"]),
        "audio_timestep": torch.tensor([1000.0 * case["audio_level"]]),
        **{key: torch.tensor([1000.0 * level]) for key, level in levels.items()},
        "video_coords": model.rope.prepare_video_coords(1, FRAMES, SIDE, SIDE, "cpu", fps=RATE),
        "audio_coords": model.audio_rope.prepare_audio_coords(1, SOUND, "cpu"),
    }
    hooks = original(model, values) if case["rule"] == "original" else []
    model.zero_grad()
    output = model(
        **values, use_cross_timestep=case["rule"] == "other", isolate_modalities=case.get("alone", False),
        return_dict=False,
    )
    for hook in hooks:
        hook.remove()
    loss = torch.zeros(())
    pairs = [(output[0], video_target, fixed), (output[1], audio_target, heard)]
    for said, wanted, known in pairs[1:] if case.get("alone") else pairs:
        free = (~known).float().expand_as(said)
        if free.sum() > 0:
            loss = loss + ((said - wanted) ** 2 * free).sum() / free.sum()
    loss.backward()
    grads = {name: own.grad if own.grad is not None else torch.zeros_like(own) for name, own in model.named_parameters()}
    return loss.detach().reshape(1), grads


def latents(pipeline, seed):
    """Clean latents of a clip and its sound, and noise of the same shapes."""
    channels = pipeline.transformer.config.in_channels
    audio = pipeline.audio_vae.config
    video = (1, channels, FRAMES, SIDE, SIDE)
    sound = (1, audio.latent_channels, SOUND, audio.mel_bins // 4)
    shapes = {"latents": video, "audio_latents": sound, "noise": video, "audio_noise": sound}
    return {key: tiny.normal(shape, seed + at) for at, (key, shape) in enumerate(shapes.items())}


def main():
    """Write all cases into one file."""
    tensors = {}
    for index, (name, case) in enumerate(CASES.items()):
        pipeline = LTX2Pipeline.from_pretrained(tiny.GOLDENS / case["folder"], dtype=torch.float32)
        found = latents(pipeline, 9300 + 10 * index)
        loss, grads = step(case, pipeline, found)
        learnt = sum(bool(own.abs().max() > 0) for own in grads.values())
        print(f"{name}: loss {loss.item():.4f}, {learnt} of {len(grads)} gradients")
        rows = torch.stack([tiny.projections(grads[key]) for key in sorted(grads)])
        tensors |= tiny.prefixed(name, found | {"loss": loss, "gradients": rows})
    config = {"cases": CASES, "caption": CAPTION, "rate": RATE}
    tiny.write(tiny.GOLDENS / "ltx2_training.safetensors", tensors, config)


if __name__ == "__main__":
    main()
