"""Whole LTX-2 pipeline runs from given noise -> goldens/ltx2_pipeline.safetensors.

The folders are those of ltx2_folder.py, read back from disk as a user would. Video and sound are drawn in that order
from one generator, as the pipeline does it; latents are as `output_type="latent"` gives them. `silent` is a run whose
streams never hear each other, so that its video is that of a run without sound.
"""

import functools

import tiny
import torch
from diffusers import LTX2ImageToVideoPipeline, LTX2Pipeline
from PIL import Image

PROMPT = "A golden fox dreaming under the ancient bridge"
NEGATIVE = "blurry dark photo"
PICTURE = "pictures/photo.png"
SIZE, TOKENS = 32, 16

PLAIN = dict(
    guidance=1.0, audio_guidance=1.0, stg=0.0, audio_stg=0.0, modality_guidance=1.0, audio_modality_guidance=1.0,
    guidance_rescale=0.0, audio_guidance_rescale=0.0, stg_blocks=[0],
)
ALL = dict(
    guidance=3.0, audio_guidance=5.0, stg=1.0, audio_stg=0.5, modality_guidance=2.5, audio_modality_guidance=2.0,
    guidance_rescale=0.7, audio_guidance_rescale=0.4, stg_blocks=[0],
)

CASES = {
    "plain": PLAIN | dict(folder="ltx2-tiny", steps=4, frames=9, frame_rate=12.0),
    "guided": PLAIN | dict(
        folder="ltx2-tiny", steps=3, frames=9, frame_rate=8.0, guidance=4.0, audio_guidance=7.0
    ),
    "every_guidance": ALL | dict(folder="ltx23-tiny", steps=3, frames=5, frame_rate=10.0),
    "skipped": ALL | dict(
        folder="ltx2-tiny", steps=3, frames=5, frame_rate=10.0, guidance=1.0, audio_guidance=1.0, stg_blocks=[0, 1]
    ),
    "image": ALL | dict(folder="ltx2-tiny", steps=3, frames=9, frame_rate=12.0, image=PICTURE, cross=True, stg_blocks=[1]),
    "image_own": PLAIN | dict(folder="ltx23-tiny", steps=3, frames=5, frame_rate=12.0, image=PICTURE, cross=False),
    "silent": PLAIN | dict(folder="ltx23-tiny", steps=3, frames=5, frame_rate=12.0),
}
# Frames of a clip that are kept.
KEPT = [3]


def load(case):
    """The folder's pipeline; a picture asks for another class over the same folder."""
    kind = LTX2ImageToVideoPipeline if "image" in case else LTX2Pipeline
    pipeline = kind.from_pretrained(tiny.GOLDENS / case["folder"], dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def call(case):
    """The arguments of a run."""
    values = dict(
        prompt=PROMPT, negative_prompt=NEGATIVE, height=SIZE, width=SIZE, num_frames=case["frames"],
        frame_rate=case["frame_rate"], num_inference_steps=case["steps"], guidance_scale=case["guidance"],
        audio_guidance_scale=case["audio_guidance"], stg_scale=case["stg"], audio_stg_scale=case["audio_stg"],
        modality_scale=case["modality_guidance"], audio_modality_scale=case["audio_modality_guidance"],
        guidance_rescale=case["guidance_rescale"], audio_guidance_rescale=case["audio_guidance_rescale"],
        spatio_temporal_guidance_blocks=case["stg_blocks"], max_sequence_length=TOKENS,
        use_cross_timestep=case.get("cross", True),
    )
    if "image" in case:
        values |= dict(image=Image.open(tiny.GOLDENS / case["image"]).convert("RGB"), image_crf=0)
    return values


def noise(case, pipeline, seed):
    """What the loop starts from: the video's and the sound's, unpacked."""
    drawn = tiny.generator(seed)
    side = SIZE // pipeline.vae_spatial_compression_ratio
    frames = (case["frames"] - 1) // pipeline.vae_temporal_compression_ratio + 1
    length = round(case["frames"] / case["frame_rate"] * 25)
    config = pipeline.audio_vae.config
    video = torch.randn((1, pipeline.transformer.config.in_channels, frames, side, side), generator=drawn)
    audio = torch.randn((1, config.latent_channels, length, config.mel_bins // 4), generator=drawn)
    return video, audio


@torch.no_grad()
def main():
    """Write all cases into one file."""
    tensors = {}
    for index, (name, case) in enumerate(CASES.items()):
        pipeline, seed = load(case), 7100 + index
        if name == "silent":
            forward = pipeline.transformer.forward
            alone = lambda isolate_modalities=False, forward=forward, **rest: forward(isolate_modalities=True, **rest)
            pipeline.transformer.forward = functools.wraps(forward)(alone)
        video_noise, audio_noise = noise(case, pipeline, seed)
        run = lambda kind: pipeline(**call(case), generator=tiny.generator(seed), output_type=kind, return_dict=False)
        latents, audio_latents = run("latent")
        frames, wave = run("pt")
        case |= dict(prompt=PROMPT, negative=NEGATIVE, height=SIZE, width=SIZE, tokens=TOKENS)
        found = {
            "noise": video_noise, "audio_noise": audio_noise, "latents": latents, "audio_latents": audio_latents,
            "frames": frames[0, KEPT].permute(0, 2, 3, 1), "wave": wave[0],
        }
        print(name, {key: (tuple(it.shape), round(it.std().item(), 3)) for key, it in found.items()})
        tensors |= tiny.prefixed(name, found)
    tiny.write(tiny.GOLDENS / "ltx2_pipeline.safetensors", tensors, {"cases": CASES, "kept": KEPT})


if __name__ == "__main__":
    main()
