"""Gemma 3 and LTX-2's connectors -> goldens/gemma3.safetensors, goldens/ltx2_connectors.safetensors.

Gemma: six layers of which the third and the sixth see everything before them and the others a window, queries in
groups, scaled positions; captions of several lengths, padded on the left, with all hidden states. Connectors:
`v20` (one projection, interleaved rope, four registers) and `v23` (a projection each, gates, split rope).
"""

import tiny
import torch
from diffusers.pipelines.ltx2 import LTX2TextConnectors
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextConfig

LENGTH = 8
LENGTHS = [8, 3, 5]

CONNECTORS = {
    "v20": {
        "seed": 9300,
        "config": dict(
            caption_channels=12, text_proj_in_factor=3, video_connector_num_attention_heads=2,
            video_connector_attention_head_dim=6, video_connector_num_layers=2,
            video_connector_num_learnable_registers=4, audio_connector_num_attention_heads=3,
            audio_connector_attention_head_dim=4, audio_connector_num_layers=1,
            audio_connector_num_learnable_registers=8, connector_rope_base_seq_len=16,
            rope_type="interleaved",
        ),
    },
    "v23": {
        "seed": 9400,
        "config": dict(
            caption_channels=5, text_proj_in_factor=4, video_connector_num_attention_heads=2,
            video_connector_attention_head_dim=8, video_connector_num_layers=1,
            video_connector_num_learnable_registers=2, video_gated_attn=True,
            audio_connector_num_attention_heads=2, audio_connector_attention_head_dim=4,
            audio_connector_num_layers=2, audio_connector_num_learnable_registers=4, audio_gated_attn=True,
            connector_rope_base_seq_len=8, rope_type="split", per_modality_projections=True,
            video_hidden_dim=16, audio_hidden_dim=8, proj_bias=True,
        ),
    },
}


def gemma_config(text):
    """A whole Gemma 3 of these text sizes, with as small an image encoder as can be."""
    vision = dict(hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1, image_size=14, patch_size=14)
    return Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=1)


def randomise_gemma(model, seed):
    """Random parameters; norms scale by one more than their weight."""
    tiny.randomise(model, seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 and "norm" in name and "vision" not in name:
                parameter.sub_(1.0)
    return model


def padded_left():
    """A mask [B, L] of captions of LENGTHS tokens."""
    return torch.tensor([[int(at >= LENGTH - length) for at in range(LENGTH)] for length in LENGTHS])


def gemma_case():
    """All tensors of the encoder and its config."""
    text = Gemma3TextConfig(
        vocab_size=29, hidden_size=12, intermediate_size=20, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, query_pre_attn_scalar=5, sliding_window=3,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    )
    model = randomise_gemma(Gemma3ForConditionalGeneration(gemma_config(text)), 9200)
    ids = torch.randint(1, text.vocab_size, (len(LENGTHS), LENGTH), generator=tiny.generator(9201))
    mask = padded_left()
    ids[mask == 0] = 0
    with torch.no_grad():
        states = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
    weights = {n: p for n, p in model.state_dict().items() if n.startswith("model.language_model.")}
    tensors = {
        **tiny.prefixed("weights", weights),
        "inputs.input_ids": ids,
        "inputs.attention_mask": mask,
        "hidden_states": torch.stack(states),
    }
    return tensors, model.config.to_dict()


def connector_case(name, case):
    """All tensors of one pair of connectors, and its config."""
    model = tiny.randomise(LTX2TextConnectors(**case["config"]), case["seed"])
    config = model.config
    shape = (len(LENGTHS), LENGTH, config.caption_channels, config.text_proj_in_factor)
    states, mask = tiny.normal(shape, case["seed"] + 1), padded_left()
    with torch.no_grad():
        video, audio, seen = model(states, mask)
    assert bool(seen.all()), "registers leave no padding"
    tensors = {
        **tiny.prefixed("weights", dict(model.named_parameters())),
        # The layers come first here: [layers, captions, tokens, width].
        "inputs.hidden_states": states.permute(3, 0, 1, 2).contiguous(),
        "inputs.attention_mask": mask,
        "video": video,
        "audio": audio,
    }
    return tiny.prefixed(name, tensors), tiny.plain_config(model)


def main():
    """Write both files."""
    tensors, config = gemma_case()
    tiny.write(tiny.GOLDENS / "gemma3.safetensors", tensors, config)
    tiny.write_cases("ltx2_connectors", CONNECTORS, connector_case)


if __name__ == "__main__":
    main()
