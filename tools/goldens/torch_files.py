"""Files of torch.save -> goldens/torch, and what torch reads from them -> goldens/torch.safetensors.

`preprocessed` is a folder as LTX-2's trainer leaves it, with one older sample; `kinds.pt` holds every type and view
that is read, and `runs-code.pt` would run a command if it were loaded as pickles are.
"""

import io
import os
import pickle
import zipfile

import tiny
import torch

FOLDER = tiny.GOLDENS / "torch"
FRAMES, HEIGHT, WIDTH, CHANNELS = 3, 2, 4, 8


def save(name, value):
    """Save under a name; the archive's own folder is called after the file, so it is the same everywhere."""
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path)
    return value


def clip(generator, height=HEIGHT, fps=24.0):
    """Latents of a clip as the trainer stores them."""
    latents = torch.randn(CHANNELS, FRAMES, height, WIDTH, generator=generator).bfloat16()
    return {"latents": latents, "num_frames": FRAMES, "height": height, "width": WIDTH, "fps": fps}


def conditions(generator, valid, audio=True):
    """Text features: pads stand before what counts."""
    mask = torch.cat([torch.zeros(6 - valid), torch.ones(valid)]).to(torch.int64)
    made = {
        "video_prompt_embeds": torch.randn(6, 5, generator=generator).bfloat16(),
        "prompt_attention_mask": mask,
    }
    if audio:
        made["audio_prompt_embeds"] = torch.randn(6, 3, generator=generator).bfloat16()
    return made


def preprocessed(generator):
    """Two samples of today and one of an older version, whose names and layout differ."""
    kept = {}
    for name, valid in [("clips/a", 4), ("clips/b", 2)]:
        video = save(f"preprocessed/latents/{name}.pt", clip(generator))
        text = save(f"preprocessed/conditions/{name}.pt", conditions(generator, valid))
        sound = {
            "latents": torch.randn(2, 5, 3, generator=generator),
            "num_time_steps": 5,
            "frequency_bins": 3,
            "duration": 0.2,
        }
        save(f"preprocessed/audio_latents/{name}.pt", sound)
        reference = save(f"preprocessed/reference_latents/{name}.pt", clip(generator, 1, 12.0))
        mask = (torch.rand(FRAMES, HEIGHT, WIDTH, generator=generator) > 0.5).float()
        save(f"preprocessed/video_masks/{name}.pt", {"mask": mask})
        counts = text["prompt_attention_mask"].bool()
        kept |= {
            f"{name}.latents": video["latents"],
            f"{name}.text": text["video_prompt_embeds"][counts],
            f"{name}.text_audio": text["audio_prompt_embeds"][counts],
            f"{name}.audio_latents": sound["latents"],
            f"{name}.ref_latents": reference["latents"],
            f"{name}.mask": (1 - mask).bfloat16(),
        }
    old = clip(generator)
    tokens = old["latents"].flatten(1).T.contiguous()
    save("older/latents/latent_0.pt", old | {"latents": tokens})
    text = conditions(generator, 3, audio=False)
    text["prompt_embeds"] = text.pop("video_prompt_embeds")
    save("older/conditions/condition_0.pt", text)
    kept["0.latents"] = old["latents"]
    kept["0.text"] = text["prompt_embeds"][text["prompt_attention_mask"].bool()]
    return kept


def kinds(generator):
    """Every type, and views that share a storage."""
    base = torch.randn(4, 6, generator=generator)
    made = {
        "f64": base.double(),
        "f32": base,
        "f16": base.half(),
        "bf16": base.bfloat16(),
        "i64": (base * 10).long(),
        "i32": (base * 10).int(),
        "i16": (base * 10).short(),
        "i8": (base * 10).to(torch.int8),
        "u8": (base.abs() * 10).to(torch.uint8),
        "bool": base > 0,
        "turned": base.T,
        "part": base[1:3, ::2],
        "repeated": base[:, :1].expand(4, 3),
        "scalar": base[2, 2],
        "empty": base[:0],
    }
    plain = {"text": "clip ä", "yes": True, "no": None, "many": [1, 2.5, -(2**40)], "pair": (7,)}
    save("kinds.pt", made | {"plain": plain})
    return tiny.prefixed("kinds", made)


class RunsCode:
    """What any pickle may hold."""

    def __reduce__(self):
        return os.getenv, ("HOME",)


def runs_code():
    """A file as torch writes it, whose pickle calls a function."""
    whole = io.BytesIO()
    torch.save({"latents": torch.zeros(2)}, whole)
    bad = pickle.dumps({"latents": RunsCode()}, protocol=2)
    source = zipfile.ZipFile(whole)
    with zipfile.ZipFile(FOLDER / "runs-code.pt", "w") as target:
        for name in source.namelist():
            value = bad if name.endswith("data.pkl") else source.read(name)
            target.writestr(zipfile.ZipInfo(name), value)


def main():
    """Write all."""
    draws = tiny.generator(15)
    kept = preprocessed(draws) | kinds(draws)
    runs_code()
    kept = {name: value.float() for name, value in kept.items()}
    tiny.write(tiny.GOLDENS / "torch.safetensors", kept, {})


if __name__ == "__main__":
    main()
