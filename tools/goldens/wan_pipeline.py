"""Whole Wan pipeline runs from given noise -> goldens/wan_pipeline.safetensors.

The folders are those of wan_folder.py, read back from disk as a user would. The picture that clips
begin with is one of goldens/pictures.
"""

import tiny
import torch
from diffusers import DiffusionPipeline, WanImageToVideoPipeline
from PIL import Image

from wan_folder import euler

PROMPT = "A golden fox,&nbsp;dreaming  under the ancient bridge"
NEGATIVE = "blurry dark photo"
PICTURE = "pictures/photo.png"

CASES = {
    "unipc_guided": dict(folder="wan-tiny", steps=6, guidance=5.0, frames=9, tokens=32),
    "euler_unguided": dict(
        folder="wan-tiny", steps=4, guidance=1.0, frames=5, tokens=32, scheduler="euler"
    ),
    "one_frame": dict(folder="wan-tiny", steps=3, guidance=3.0, frames=1, tokens=32),
    "image": dict(folder="wan-tiny-i2v", steps=4, guidance=4.0, frames=5, tokens=512, image=PICTURE),
    "per_token": dict(folder="wan-tiny-ti2v", steps=4, guidance=4.0, frames=5, tokens=32),
    "first_frame": dict(
        folder="wan-tiny-ti2v", steps=4, guidance=4.0, frames=5, tokens=32, image=PICTURE
    ),
    "experts": dict(folder="wan-tiny-experts", steps=6, guidance=4.0, frames=5, tokens=32),
}


def load(case):
    """The folder's pipeline; a picture may ask for another class over the same folder."""
    kind = WanImageToVideoPipeline if "image" in case else DiffusionPipeline
    pipeline = kind.from_pretrained(tiny.GOLDENS / case["folder"], dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    if case.get("scheduler") == "euler":
        pipeline.scheduler = euler()
    return pipeline


def run(case, pipeline, noise):
    """The final latents and the frames [frames, height, width, 3] from 0 to 1."""
    call = dict(
        prompt=PROMPT, negative_prompt=NEGATIVE, height=case["height"], width=case["width"],
        num_frames=case["frames"], num_inference_steps=case["steps"],
        guidance_scale=case["guidance"], max_sequence_length=case["tokens"], latents=noise,
    )
    if "image" in case:
        call["image"] = Image.open(tiny.GOLDENS / case["image"]).convert("RGB")
    latents = pipeline(**call, output_type="latent").frames
    mean, std = (
        torch.tensor(values).view(1, -1, 1, 1, 1)
        for values in (pipeline.vae.config.latents_mean, pipeline.vae.config.latents_std)
    )
    video = pipeline.vae.decode(latents * std + mean, return_dict=False)[0]
    frames = pipeline.video_processor.postprocess_video(video, "pt")[0].permute(0, 2, 3, 1)
    return latents, frames


@torch.no_grad()
def main():
    """Write all cases into one file."""
    tensors = {}
    for index, (name, case) in enumerate(CASES.items()):
        pipeline = load(case)
        factor = pipeline.vae_scale_factor_spatial
        case["height"], case["width"] = 2 * factor, (4 if factor == 8 else 2) * factor
        case |= dict(prompt=PROMPT, negative=NEGATIVE)
        latent_frames = (case["frames"] - 1) // 4 + 1
        shape = (1, 4, latent_frames, case["height"] // factor, case["width"] // factor)
        noise = tiny.normal(shape, 7000 + index)
        latents, frames = run(case, pipeline, noise)
        print(f"{name}: latents std {latents.std():.2f}, frames std {frames.std():.3f}")
        found = {"noise": noise, "latents": latents, "frames": frames}
        tensors |= tiny.prefixed(name, found)
    tiny.write(tiny.GOLDENS / "wan_pipeline.safetensors", tensors, {"cases": CASES})


if __name__ == "__main__":
    main()
