"""A folder as LTX-2's trainer preprocesses it for ltx2-tiny -> goldens/torch/ltx2, and goldens/ltx2_preprocessed.safetensors.

Captions are kept as features, before the connectors that the trainer runs at every step; the second file holds what
both streams read of them then, the video's part first. `b` has no sound, and one set of features for both streams.
"""

import tiny
import torch
from diffusers.pipelines.ltx2 import LTX2TextConnectors

from ltx2_folder import AUDIO_BINS, AUDIO_LATENT, LATENT, TEXT
from torch_files import save

LENGTH, FRAMES, SIDE, SOUND = 8, 2, 2, 5


def features(generator):
    """Of one caption for one stream."""
    return torch.randn(LENGTH, TEXT, generator=generator).bfloat16()


@torch.no_grad()
def read(connectors, video, audio, mask):
    """What both streams read of the features."""
    hidden = (1.0 - mask[None].float()) * -1e5
    streams = [(connectors.video_connector, video), (connectors.audio_connector, audio)]
    return torch.cat([stream(own[None].float(), hidden)[0] for stream, own in streams], dim=2)[0]


def main():
    """Write all."""
    connectors = LTX2TextConnectors.from_pretrained(tiny.GOLDENS / "ltx2-tiny" / "connectors")
    draws = tiny.generator(16)
    kept = {}
    for name, valid in [("a", 5), ("b", 2)]:
        latents = torch.randn(LATENT, FRAMES, SIDE, SIDE, generator=draws).bfloat16()
        clip = {"latents": latents, "num_frames": FRAMES, "height": SIDE, "width": SIDE, "fps": 25.0}
        save(f"ltx2/latents/{name}.pt", clip)
        mask = torch.cat([torch.zeros(LENGTH - valid), torch.ones(valid)]).to(torch.int64)
        text = {"prompt_attention_mask": mask}
        if name == "a":
            text |= {"video_prompt_embeds": features(draws), "audio_prompt_embeds": features(draws)}
            sound = torch.randn(AUDIO_LATENT, SOUND, AUDIO_BINS, generator=draws)
            told = {"num_time_steps": SOUND, "frequency_bins": AUDIO_BINS, "duration": 0.2}
            save(f"ltx2/audio_latents/{name}.pt", {"latents": sound} | told)
            kept["a.audio_latents"] = sound
            both = text["video_prompt_embeds"], text["audio_prompt_embeds"]
        else:
            text["prompt_embeds"] = features(draws)
            both = text["prompt_embeds"], text["prompt_embeds"]
        save(f"ltx2/conditions/{name}.pt", text)
        kept |= {f"{name}.latents": latents.float(), f"{name}.text": read(connectors, *both, mask)}
    tiny.write(tiny.GOLDENS / "ltx2_preprocessed.safetensors", kept, {})


if __name__ == "__main__":
    main()
