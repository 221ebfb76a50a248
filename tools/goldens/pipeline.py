"""Whole PixArt-alpha pipeline runs from given noise -> goldens/pixart_pipeline.safetensors.

The folders are those of pixart_folder.py, read back from disk as a user would.
"""

import json

import tiny
import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler, PixArtAlphaPipeline

PROMPT = "a red circle moves left, Studio Lighting"
NEGATIVE = "blurry, dark"
LONG = "a sleepy fox under the golden moon near a frozen lake, " * 9

CASES = {
    "dpm_20_guided": dict(
        folder="pixart-tiny", scheduler="dpm", steps=20, guidance=4.5, height=32, width=48,
        prompts=[PROMPT], negative=NEGATIVE,
    ),
    "dpm_2_unguided": dict(
        folder="pixart-tiny", scheduler="dpm", steps=2, guidance=1.0, height=48, width=32,
        prompts=[PROMPT], negative=NEGATIVE,
    ),
    "dpm_5_batch": dict(
        folder="pixart-tiny", scheduler="dpm", steps=5, guidance=4.5, height=16, width=48,
        prompts=["", LONG, "  A quiet   OWL! "], negative="",
    ),
    "ddim_20_guided": dict(
        folder="pixart-tiny", scheduler="ddim", steps=20, guidance=4.5, height=48, width=16,
        prompts=[PROMPT], negative=NEGATIVE,
    ),
    "ddim_2_unguided": dict(
        folder="pixart-tiny", scheduler="ddim", steps=2, guidance=1.0, height=32, width=48,
        prompts=[PROMPT], negative=NEGATIVE,
    ),
    "conditions_dpm_20_guided": dict(
        folder="pixart-tiny-conditions", scheduler="dpm", steps=20, guidance=4.5, height=32, width=40,
        prompts=[PROMPT], negative=NEGATIVE,
    ),
    "conditions_dpm_2_unguided": dict(
        folder="pixart-tiny-conditions", scheduler="dpm", steps=2, guidance=1.0, height=40, width=24,
        prompts=[PROMPT], negative=NEGATIVE,
    ),
    "conditions_ddim_20_guided": dict(
        folder="pixart-tiny-conditions", scheduler="ddim", steps=20, guidance=4.5, height=24, width=40,
        prompts=[PROMPT, "tiger"], negative="",
    ),
}


def load(case, dtype=torch.float32):
    """The case's folder with the case's scheduler in place of its own."""
    pipeline = PixArtAlphaPipeline.from_pretrained(tiny.GOLDENS / case["folder"], dtype=dtype)
    pipeline.set_progress_bar_config(disable=True)
    if case["scheduler"] == "ddim":
        config = json.loads((tiny.GOLDENS / "configs" / "ddim_scheduler.json").read_text())
        pipeline.scheduler = DDIMScheduler.from_config(config)
    else:
        assert isinstance(pipeline.scheduler, DPMSolverMultistepScheduler)
    return pipeline


def noise(case, pipeline, seed):
    """Initial latents [prompts, 4, height / factor, width / factor]."""
    factor = pipeline.vae_scale_factor
    return tiny.normal((len(case["prompts"]), 4, case["height"] // factor, case["width"] // factor), seed)


def embeddings(case, pipeline):
    """What encode_prompt hands to the transformer; negatives only under guidance."""
    found = pipeline.encode_prompt(
        case["prompts"],
        do_classifier_free_guidance=case["guidance"] > 1.0,
        negative_prompt=case["negative"],
    )
    names = ("prompt_embeds", "prompt_mask", "negative_prompt_embeds", "negative_prompt_mask")
    return {name: tensor for name, tensor in zip(names, found) if tensor is not None}


def denoise(case, pipeline, latents):
    """The final latents as output_type="latent" gives them."""
    return pipeline(
        prompt=case["prompts"],
        negative_prompt=case["negative"],
        num_inference_steps=case["steps"],
        guidance_scale=case["guidance"],
        height=case["height"],
        width=case["width"],
        latents=latents,
        output_type="latent",
        use_resolution_binning=False,
        clean_caption=False,
    ).images


def decode(pipeline, latents):
    """The pipeline's last steps: pixels in [0, 1] as [prompts, 3, height, width]."""
    image = pipeline.vae.decode(latents / pipeline.vae.config.scaling_factor, return_dict=False)[0]
    return pipeline.image_processor.postprocess(image, output_type="pt")


def rounded(pipeline, parts):
    """Round the parts' weights to bfloat16 and go on in float32: the least that bfloat16 costs."""
    for part in parts:
        for parameter in getattr(pipeline, part).parameters():
            parameter.copy_(parameter.bfloat16().float())
    return pipeline


def relative(one, other):
    """The largest difference over the standard deviation of `other`."""
    return ((one.double() - other.double()).abs().max() / other.double().std()).item()


def report(name, case, start, latents, pixels):
    """Print how far diffusers' own runs at other precisions are from the golden."""
    print(f"{name}: latents std {latents.std():.2f}, pixels std {pixels.std():.3f}")
    others = {
        "float64": load(case, torch.float64),
        "bfloat16 weights": rounded(load(case), ("text_encoder", "transformer", "vae")),
        "bfloat16 weights, VAE float32": rounded(load(case), ("text_encoder", "transformer")),
        "bfloat16": load(case, torch.bfloat16),
    }
    for label, pipeline in others.items():
        other = denoise(case, pipeline, start.to(pipeline.dtype))
        off = relative(other, latents), relative(decode(pipeline, other), pixels)
        print(f"  {label}: off by {off[0]:.1e} (latents), {off[1]:.1e} (pixels)")


@torch.no_grad()
def main():
    """Write all cases into one file."""
    tensors = {}
    for index, (name, case) in enumerate(CASES.items()):
        pipeline = load(case)
        start = noise(case, pipeline, 6000 + index)
        latents = denoise(case, pipeline, start)
        pixels = decode(pipeline, latents)
        report(name, case, start, latents, pixels)
        found = embeddings(case, pipeline)
        found |= {"noise": start, "latents": latents, "pixels": pixels}
        tensors |= tiny.prefixed(name, found)
    tiny.write(tiny.GOLDENS / "pixart_pipeline.safetensors", tensors, {"cases": CASES})


if __name__ == "__main__":
    main()
