"""LTX-2's transformer, forward and backward -> goldens/ltx2_transformer.safetensors.

Two models: `v20` (interleaved rope, caption projections, a masked text, one timestep per sample) and `v23`
(split rope, gated attention, modulated prompts, a timestep per token, other timesteps for the sound). Each
with inputs, the outputs of both tracks under the rules of diffusers and of the original for the levels of
cross-modal attention, outputs where the tracks do not hear each other, and sketches of the gradients of
sum(output * cotangent); `v23` also where the second block skips its self-attention.
"""

import tiny
import torch
from diffusers import LTX2VideoTransformer3DModel

SHARED = dict(num_layers=2, base_height=96, base_width=160, pos_embed_max_pos=3, audio_pos_embed_max_pos=2)

CASES = {
    "v20": {
        "seed": 8000,
        "grid": (2, 2, 3),
        "audio": 5,
        "text": 4,
        "visible": [[1, 1, 1, 0], [1, 1, 1, 1]],
        "timestep": [999.0, 417.3],
        "audio_timestep": [640.5, 12.0],
        "cross": False,
        "config": dict(
            SHARED, in_channels=5, out_channels=5, num_attention_heads=2, attention_head_dim=6,
            cross_attention_dim=12, audio_in_channels=3, audio_out_channels=3, audio_num_attention_heads=2,
            audio_attention_head_dim=4, audio_cross_attention_dim=8, caption_channels=7,
            rope_type="interleaved", cross_attn_timestep_scale_multiplier=500,
        ),
    },
    "v23": {
        "seed": 9000,
        "grid": (3, 1, 2),
        "audio": 7,
        "text": 3,
        # The first frame is a picture; the rest has the sample's level.
        "timestep": [[0.0, 831.0, 831.0], [0.0, 250.0, 250.0]],
        "audio_timestep": [700.0, 33.0],
        "cross": True,
        "config": dict(
            SHARED, in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8,
            cross_attention_dim=16, audio_in_channels=6, audio_out_channels=6, audio_num_attention_heads=2,
            audio_attention_head_dim=4, audio_cross_attention_dim=8, rope_type="split", gated_attn=True,
            audio_gated_attn=True, cross_attn_mod=True, audio_cross_attn_mod=True, use_prompt_embeddings=False,
            perturbed_attn=True,
        ),
    },
}


def build(case):
    """The model, every parameter random."""
    return tiny.randomise(LTX2VideoTransformer3DModel(**case["config"]), case["seed"])


def inputs(case, model):
    """The keyword tensors of one forward, both samples different in every way."""
    config, seed, grid = model.config, case["seed"], case["grid"]
    tokens = grid[0] * grid[1] * grid[2]
    captions = config.caption_channels if config.use_prompt_embeddings else None
    timestep = torch.tensor(case["timestep"])
    sigma = timestep if timestep.dim() == 1 else timestep[:, -1]
    if timestep.dim() == 2:
        timestep = timestep.repeat_interleave(grid[1] * grid[2], dim=1)
    rates = torch.tensor([24.0, 16.0])
    coords = [model.rope.prepare_video_coords(1, *grid, "cpu", fps=rate) for rate in rates.tolist()]
    values = {
        "hidden_states": tiny.normal((2, tokens, config.in_channels), seed + 1),
        "audio_hidden_states": tiny.normal((2, case["audio"], config.audio_in_channels), seed + 2),
        "encoder_hidden_states": tiny.normal((2, case["text"], captions or config.cross_attention_dim), seed + 3),
        "audio_encoder_hidden_states": tiny.normal(
            (2, case["text"], captions or config.audio_cross_attention_dim), seed + 4
        ),
        "timestep": timestep,
        "audio_timestep": torch.tensor(case["audio_timestep"]),
        "sigma": sigma,
        "audio_sigma": torch.tensor(case["audio_timestep"]),
        "video_coords": torch.cat(coords),
        "audio_coords": model.audio_rope.prepare_audio_coords(2, case["audio"], "cpu").contiguous(),
    }
    if "visible" in case:
        values["encoder_attention_mask"] = torch.tensor(case["visible"], dtype=torch.float32)
        values["audio_encoder_attention_mask"] = torch.tensor(case["visible"], dtype=torch.float32).flip(0)
    return values


def original(model, values):
    """Make the gates see the other track's level, as the original does, until the hooks are removed."""
    factor = model.config.cross_attn_timestep_scale_multiplier / model.config.timestep_scale_multiplier
    gates = [(model.av_cross_attn_video_a2v_gate, "audio_sigma"), (model.av_cross_attn_audio_v2a_gate, "sigma")]
    return [
        module.register_forward_pre_hook(lambda _module, _args, other=values[key] * factor: (other,))
        for module, key in gates
    ]


def forward(model, values, rule, **options):
    """Both outputs in one row per sample; `rule` says whose level cross-modal attention sees."""
    hooks = original(model, values) if rule == "original" else []
    output = model(**values, use_cross_timestep=rule == "other", return_dict=False, **options)
    for hook in hooks:
        hook.remove()
    return output


def joined(output):
    """Video and audio as one tensor."""
    return torch.cat([part.flatten(1) for part in output], dim=1)


def precision(case, values, cotangent, result):
    """How far float32 is from float64: relative norm error of the output and of the worst gradient."""
    double = build(case).double()
    exact = ("timestep", "audio_timestep", "sigma", "audio_sigma", "video_coords", "audio_coords")
    wide = {key: value if key in exact else value.detach().double() for key, value in values.items()}
    output, _, grads = tiny.gradients(double, joined(forward(double, wide, "original")), cotangent.double())
    off = ((result[0] - output).norm() / output.norm()).item()
    return off, max(((result[2][n] - grads[n]).norm() / grads[n].norm()).item() for n in grads)


def make(name, case):
    """All tensors of one case, and its config."""
    model = build(case)
    values = inputs(case, model)
    tensors = {}
    with torch.no_grad():
        runs = {rule: (rule, {}) for rule in ("original", "own", "other")}
        runs["apart"] = ("original", {"isolate_modalities": True})
        if model.config.perturbed_attn:
            runs["skipped"] = ("original", {"spatio_temporal_guidance_blocks": [1]})
        for run, (rule, options) in runs.items():
            video, audio = forward(model, values, rule, **options)
            tensors |= {f"output.{run}": video, f"audio_output.{run}": audio}
    for key in ("hidden_states", "audio_hidden_states"):
        values[key].requires_grad_()
    output = forward(model, values, "original")
    cotangent = tiny.normal(joined(output).shape, case["seed"] + 5)
    result = tiny.gradients(model, joined(output), cotangent)
    off, worst = precision(case, values, cotangent, result)
    print(f"{name}: float32 against float64: output {off:.1e}, worst gradient {worst:.1e}")
    split = output[0][0].numel()
    tensors |= {
        **tiny.prefixed("weights", dict(model.named_parameters())),
        **tiny.prefixed("inputs", values),
        **tiny.prefixed("gradients", {key: tiny.sketch(value) for key, value in result[2].items()}),
        "cotangent": cotangent[:, :split].reshape(output[0].shape),
        "audio_cotangent": cotangent[:, split:].reshape(output[1].shape),
        "input_gradient": values["hidden_states"].grad,
        "audio_input_gradient": values["audio_hidden_states"].grad,
    }
    config = tiny.plain_config(model)
    config["vae_scale_factors"] = list(config["vae_scale_factors"])
    return tiny.prefixed(name, tensors), config


def main():
    """Write all cases into one file."""
    tiny.write_cases("ltx2_transformer", CASES, make)


if __name__ == "__main__":
    main()
