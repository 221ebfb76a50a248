"""Wan transformer, forward and backward -> goldens/wan_transformer.safetensors.

Four models: `t2v` (two layers, a norm before cross-attention), `i2v` (keys and values for a picture,
more input than output channels, no such norm), `flf2v` (the weights of `i2v` and an embedding of the
places of two pictures' tokens) and `ti2v` (a timestep per token, one text token, an odd patch). Each
with inputs, the whole output and sketches of the gradients of sum(output * cotangent); `t2v` also with one
block's own inputs and output.
"""

import tiny
import torch
from diffusers import WanTransformer3DModel

# The attention that looks at a picture takes the last 512 tokens for the text.
TEXT_WITH_PICTURE = 512

PICTURE = dict(
    patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=10, in_channels=5,
    out_channels=3, text_dim=6, freq_dim=8, ffn_dim=21, num_layers=1, cross_attn_norm=False,
    image_dim=7, added_kv_proj_dim=20,
)

CASES = {
    "t2v": {
        "seed": 5000,
        "latent": (3, 10, 4),
        "text": 7,
        "timestep": [999.0, 417.3],
        "config": dict(
            patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=14, in_channels=3,
            out_channels=3, text_dim=9, freq_dim=16, ffn_dim=19, num_layers=2, cross_attn_norm=True,
        ),
    },
    "i2v": {
        "seed": 6000,
        "latent": (2, 4, 6),
        "text": 8,
        "picture": 4,
        "timestep": [3.0, 750.5],
        "config": PICTURE,
    },
    "flf2v": {
        "seed": 6000,
        "latent": (2, 4, 6),
        "text": 8,
        "picture": 3,
        "timestep": [940.0, 21.5],
        "config": dict(PICTURE, pos_embed_seq_len=6),
        "like": "i2v",
    },
    "ti2v": {
        "seed": 7000,
        "latent": (6, 5, 4),
        "text": 1,
        # The first frame of patches is a picture; the rest has the sample's level.
        "timestep": [[0.0, 831.0, 831.0], [12.5, 250.0, 251.0]],
        "config": dict(
            patch_size=(2, 1, 2), num_attention_heads=3, attention_head_dim=6, in_channels=4,
            out_channels=4, text_dim=5, freq_dim=12, ffn_dim=17, num_layers=1, cross_attn_norm=True,
        ),
    },
}


def build(case):
    """The model, every parameter random; those of a case that is `like` another equal its."""
    model = tiny.randomise(WanTransformer3DModel(**case["config"]), case["seed"])
    if "like" in case:
        other = build(CASES[case["like"]])
        model.load_state_dict(other.state_dict(), strict=False)
    return model


def timesteps(case):
    """One per sample, or one per token where the case gives one per frame of patches."""
    values = torch.tensor(case["timestep"])
    if values.dim() == 1:
        return values
    _, height, width = (size // patch for size, patch in zip(case["latent"], case["config"]["patch_size"]))
    return values.repeat_interleave(height * width, dim=1)


def inputs(case, model):
    """The keyword tensors of one forward, both samples different in every way."""
    config, seed = model.config, case["seed"]
    values = {
        "hidden_states": tiny.normal((2, config.in_channels, *case["latent"]), seed + 1),
        "encoder_hidden_states": tiny.normal((2, case["text"], config.text_dim), seed + 2),
        "timestep": timesteps(case),
    }
    if "picture" in case:
        pictures = 2 if config.pos_embed_seq_len else 1
        shape = (2 * pictures, case["picture"], config.image_dim)
        values["encoder_hidden_states_image"] = tiny.normal(shape, seed + 4)
    return values


def forward(model, values):
    """Run the model as the pipeline calls it; a text beside a picture is said over and over."""
    values = dict(values)
    if "encoder_hidden_states_image" in values:
        text = values["encoder_hidden_states"]
        times = TEXT_WITH_PICTURE // text.shape[1]
        values["encoder_hidden_states"] = text.repeat(1, times, 1)
    return model(**values, return_dict=False)[0]


def watch(model, block):
    """Record what the given block receives and returns; the dict is filled by the next forward."""
    seen = {}

    def hook(_module, positional, output):
        hidden_states, text, modulation, (cosine, sine) = positional
        seen["hidden_states"] = hidden_states.detach().clone()
        seen["encoder_hidden_states"] = text.detach().clone()
        # The six modulation rows of all layers, before the block adds its own table: [B, 6, width].
        seen["timestep"] = modulation.detach().clone()
        # Each angle stands twice, side by side: [1, T, 1, head width].
        seen["cosine"], seen["sine"] = cosine.clone(), sine.clone()
        seen["output"] = output.detach().clone()

    model.blocks[block].register_forward_hook(hook)
    return seen


def blind(case, name):
    """Whether the parameter has no true gradient: one text token is chosen whatever asks for it."""
    modules = ("norm2.", "attn2.to_q.", "attn2.to_k.", "attn2.norm_q.", "attn2.norm_k.")
    return case["text"] == 1 and any(module in name for module in modules)


def precision(case, values, cotangent, result):
    """How far float32 is from float64: relative norm error of output and of the worst gradient."""
    double = build(case).double()
    # Timesteps stay: their sinusoids are float32 in every case.
    wide = {k: v if k == "timestep" else v.double() for k, v in values.items()}
    wide["hidden_states"] = wide["hidden_states"].detach().requires_grad_()
    output, _, grads = tiny.gradients(double, forward(double, wide), cotangent.double())
    off = ((result[0] - output).norm() / output.norm()).item()
    seen = [name for name in grads if not blind(case, name)]
    return off, max(((result[2][n] - grads[n]).norm() / grads[n].norm()).item() for n in seen)


def make(name, case):
    """All tensors of one case, and its config."""
    model = build(case)
    seen = watch(model, 1) if name == "t2v" else {}
    values = inputs(case, model)
    values["hidden_states"].requires_grad_()
    cotangent = tiny.normal((2, model.config.out_channels, *case["latent"]), case["seed"] + 3)
    result = tiny.gradients(model, forward(model, values), cotangent)
    off, worst = precision(case, values, cotangent, result)
    print(f"{name}: float32 against float64: output {off:.1e}, worst gradient {worst:.1e}")
    weights = dict(model.named_parameters())
    if "like" in case:
        weights = {key: value for key, value in weights.items() if key.endswith("pos_embed")}
    tensors = {
        **tiny.prefixed("weights", weights),
        **tiny.prefixed("inputs", values),
        **tiny.prefixed("block.1", seen),
        **tiny.prefixed("gradients", {key: tiny.sketch(result[2][key]) for key in weights if not blind(case, key)}),
        "output": result[0],
        "cotangent": cotangent,
        "loss": result[1],
        "input_gradient": values["hidden_states"].grad,
    }
    config = tiny.plain_config(model)
    config["patch_size"] = list(config["patch_size"])
    return tiny.prefixed(name, tensors), config


def main():
    """Write all cases into one file."""
    tiny.write_cases("wan_transformer", CASES, make)


if __name__ == "__main__":
    main()
