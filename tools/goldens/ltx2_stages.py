"""LTX-2 in few steps, in two stages and with pictures given -> goldens/ltx2_stages.safetensors.

The folders are those of ltx2_folder.py; `goldens/ltx2-tiny-upsampler` is what makes their latents larger, as diffusers
saves it. `distilled` takes the few steps of the distilled checkpoints. `twice` and what begins so are runs of half the
size, whose latents are made larger and which go on at the steps of the second stage; the noise that is mixed in there is
kept beside that of the beginning. The rest gives pictures as `LTX2ConditionPipeline` takes them; they have the size of
the clip, so that nobody resizes them.
"""

import shutil

import tiny
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    LTX2ConditionPipeline,
    LTX2LatentUpsamplePipeline,
    LTX2Pipeline,
)
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2VideoCondition
from diffusers.pipelines.ltx2.utils import DISTILLED_SIGMA_VALUES, STAGE_2_DISTILLED_SIGMA_VALUES
from PIL import Image

from ltx2_folder import LATENT
from ltx2_pipeline import ALL, NEGATIVE, PLAIN, PROMPT, TOKENS

UPSAMPLER = "ltx2-tiny-upsampler"
# Heights and widths of the pictures that are given: of a clip, and of one that is made in two stages.
PICTURES = {"small": (32, 32), "large": (64, 64)}

CASES = {
    "distilled": PLAIN | dict(folder="ltx2-tiny", size=[32, 32], frames=5, frame_rate=10.0, sigmas=DISTILLED_SIGMA_VALUES),
    "twice": PLAIN | dict(
        folder="ltx23-tiny", size=[64, 128], frames=5, frame_rate=12.0, sigmas=DISTILLED_SIGMA_VALUES, twice=True
    ),
    "twice_guided": ALL | dict(
        folder="ltx23-tiny", size=[64, 64], frames=5, frame_rate=10.0, steps=3, twice=True, adain=0.5, tone_map=0.6
    ),
    "twice_given": PLAIN | dict(
        folder="ltx23-tiny", size=[64, 64], frames=5, frame_rate=12.0, sigmas=[1.0, 0.975, 0.725, 0.421875], twice=True,
        cross=True, given={"0": "large", "2": "large-later"},
    ),
    "first": ALL | dict(
        folder="ltx2-tiny", size=[32, 32], frames=9, frame_rate=12.0, steps=3, cross=True, given={"0": "small"}
    ),
    "last": ALL | dict(
        folder="ltx2-tiny", size=[32, 32], frames=9, frame_rate=12.0, steps=3, cross=True, given={"-1": "small-later"}
    ),
    "both_ends": PLAIN | dict(
        folder="ltx23-tiny", size=[32, 32], frames=5, frame_rate=12.0, steps=3, cross=False,
        given={"0": "small", "-1": "small-later"},
    ),
    "keyframe": ALL | dict(
        folder="ltx23-tiny", size=[32, 32], frames=5, frame_rate=10.0, steps=3, cross=True, given={"1": "small"}
    ),
    "prefix": ALL | dict(
        folder="ltx2-tiny", size=[32, 32], frames=9, frame_rate=12.0, steps=3, cross=True,
        given={"0": ["small", "small-later", "small", "small-later", "small-later"]},
    ),
}


def upsampler():
    """Latents of the tiny folders, twice as high and wide, in numbers of two bytes."""
    model = LTX2LatentUpsamplerModel(in_channels=LATENT, mid_channels=32, num_blocks_per_stage=0)
    return tiny.randomise(model, 480).to(torch.bfloat16)


def write_folder():
    """Save it as a user finds it."""
    folder = tiny.GOLDENS / UPSAMPLER
    shutil.rmtree(folder, ignore_errors=True)
    upsampler().save_pretrained(folder, safe_serialization=True)
    for file in folder.rglob("*.safetensors"):
        file.chmod(0o644)


def picture(name):
    """A picture of the size of its clip, cut from one or the other corner of a photo."""
    height, width = PICTURES[name.removesuffix("-later")]
    photo = Image.open(tiny.GOLDENS / "pictures/photo.png").convert("RGB").resize((80, 80), Image.Resampling.BILINEAR)
    left, top = (80 - width, 80 - height) if name.endswith("-later") else (0, 0)
    return photo.crop((left, top, left + width, top + height))


def load(case):
    """The folder's pipeline; who is given something is of another class over the same folder."""
    kind = LTX2ConditionPipeline if "given" in case else LTX2Pipeline
    pipeline = kind.from_pretrained(tiny.GOLDENS / case["folder"], dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def still(pipeline):
    """The same pipeline, whose scheduler moves no level: what diffusers tells users of distilled checkpoints."""
    config = pipeline.scheduler.config
    scheduler = FlowMatchEulerDiscreteScheduler.from_config(config, use_dynamic_shifting=False, shift_terminal=None)
    pipeline.register_modules(scheduler=scheduler)


def call(case, size):
    """The arguments of a run of a size."""
    values = dict(
        prompt=PROMPT, negative_prompt=NEGATIVE, height=size[0], width=size[1], num_frames=case["frames"],
        frame_rate=case["frame_rate"], max_sequence_length=TOKENS, use_cross_timestep=case.get("cross", True),
    )
    if "given" in case:
        conditions = []
        for index, name in case["given"].items():
            # In the first of two stages a picture is half as large.
            all = [picture(one) for one in ([name] if isinstance(name, str) else name)]
            frames = [one.resize((size[1], size[0]), Image.Resampling.BILINEAR) if one.size[0] != size[1] else one for one in all]
            conditions.append(LTX2VideoCondition(frames=frames, index=int(index), crf=0))
        values["conditions"] = conditions
    return values


def guidance(case):
    """How a run is guided."""
    return dict(
        guidance_scale=case["guidance"], audio_guidance_scale=case["audio_guidance"], stg_scale=case["stg"],
        audio_stg_scale=case["audio_stg"], modality_scale=case["modality_guidance"],
        audio_modality_scale=case["audio_modality_guidance"], guidance_rescale=case["guidance_rescale"],
        audio_guidance_rescale=case["audio_guidance_rescale"], spatio_temporal_guidance_blocks=case["stg_blocks"],
    )


def grid(case, pipeline, size):
    """Latent frames, rows and columns, and steps of the sound."""
    side = pipeline.vae_spatial_compression_ratio
    frames = (case["frames"] - 1) // pipeline.vae_temporal_compression_ratio + 1
    return (frames, size[0] // side, size[1] // side), round(case["frames"] / case["frame_rate"] * 25)


def noise(case, pipeline, size, seed, packed):
    """What a run draws: the video's and the sound's, unpacked. Some are drawn as tokens, with those of keyframes."""
    drawn = tiny.generator(seed)
    (frames, rows, columns), length = grid(case, pipeline, size)
    channels, config = pipeline.transformer.config.in_channels, pipeline.audio_vae.config
    bins = config.mel_bins // 4
    if not packed:
        video = torch.randn((1, channels, frames, rows, columns), generator=drawn)
        return video, torch.randn((1, config.latent_channels, length, bins), generator=drawn)
    later = sum(index != "0" for index in case.get("given", {}))
    tokens = torch.randn((1, (frames + later) * rows * columns, channels), generator=drawn)[:, :frames * rows * columns]
    video = tokens.reshape(1, frames, rows, columns, channels).permute(0, 4, 1, 2, 3)
    audio = torch.randn((1, length, config.latent_channels * bins), generator=drawn)
    return video, audio.reshape(1, length, config.latent_channels, bins).transpose(1, 2)


def made(case, seed):
    """Every tensor of a case."""
    pipeline = load(case)
    twice, given = case.get("twice"), "given" in case
    size = [side // 2 for side in case["size"]] if twice else case["size"]
    if "sigmas" in case:
        still(pipeline)
    steps = dict(sigmas=case["sigmas"]) if "sigmas" in case else dict(num_inference_steps=case["steps"])
    latents, audio = pipeline(
        **call(case, size), **guidance(case), **steps, generator=tiny.generator(seed), output_type="latent",
        return_dict=False,
    )
    video_noise, audio_noise = noise(case, pipeline, size, seed, given)
    found = {"noise": video_noise, "audio_noise": audio_noise}
    if twice:
        found["small_latents"] = latents
        model = LTX2LatentUpsamplerModel.from_pretrained(tiny.GOLDENS / UPSAMPLER, torch_dtype=torch.float32)
        larger = LTX2LatentUpsamplePipeline(vae=pipeline.vae, latent_upsampler=model)
        latents = larger(
            latents=latents, height=size[0], width=size[1], num_frames=case["frames"], latents_normalized=False,
            adain_factor=case.get("adain", 0.0), tone_map_compression_ratio=case.get("tone_map", 0.0),
            output_type="latent", return_dict=False,
        )[0]
        found["larger"] = latents
        still(pipeline)
        sigmas = STAGE_2_DISTILLED_SIGMA_VALUES
        second = tiny.generator(seed + 1000)
        latents, audio = pipeline(
            **call(case, case["size"]), **guidance(PLAIN), sigmas=sigmas, noise_scale=sigmas[0], latents=latents,
            audio_latents=audio, generator=second, output_type="latent", return_dict=False,
        )
        names = ("enlarged_noise", "enlarged_audio_noise")
        found |= dict(zip(names, noise(case, pipeline, case["size"], seed + 1000, True)))
    return found | {"latents": latents, "audio_latents": audio}


@torch.no_grad()
def main():
    """Write the folder, and all cases into one file."""
    write_folder()
    tensors, config = {}, {}
    for index, (name, case) in enumerate(CASES.items()):
        found = made(case, 7300 + index)
        print(name, {key: (tuple(it.shape), round(it.std().item(), 3)) for key, it in found.items()})
        tensors |= tiny.prefixed(name, found)
        config[name] = case | dict(prompt=PROMPT, negative=NEGATIVE, tokens=TOKENS)
    pictures = {f"{name}{later}" for name in PICTURES for later in ("", "-later")}
    for name in sorted(pictures):
        image = picture(name)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).reshape(image.height, image.width, 3)
        tensors[f"picture.{name}"] = pixels
    tiny.write(tiny.GOLDENS / "ltx2_stages.safetensors", tensors, {"cases": config, "second": STAGE_2_DISTILLED_SIGMA_VALUES})


if __name__ == "__main__":
    main()
