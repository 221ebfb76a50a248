"""PixArt transformer, forward and backward -> goldens/pixart_transformer.safetensors.

Two models: `plain` (two heads, two layers, no resolution conditions) and `conditions` (head width
72, resolution and aspect-ratio conditions). Each with inputs, one block's own inputs and output,
the whole output, and sketches of the gradients of sum(output * cotangent).
"""

import tiny
import torch
from diffusers import PixArtTransformer2DModel

CASES = {
    "plain": {
        "seed": 1000,
        "latent": (10, 14),
        "caption": 11,
        "lengths": [1, 6, 11],
        "timestep": [0, 417, 999],
        "config": dict(
            sample_size=32, num_layers=2, num_attention_heads=2, attention_head_dim=14,
            cross_attention_dim=28, caption_channels=13,
        ),
    },
    "conditions": {
        "seed": 2000,
        "latent": (6, 10),
        "caption": 7,
        "lengths": [7, 1, 4],
        "timestep": [999, 1, 250],
        "config": dict(
            sample_size=128, num_layers=1, num_attention_heads=1, attention_head_dim=72,
            cross_attention_dim=72, caption_channels=10,
        ),
    },
}

RESOLUTION = [[1024.0, 1024.0], [512.0, 2048.0], [832.0, 1216.0]]


def inputs(case, model):
    """The keyword tensors of one forward, all three samples different in every way."""
    height, width = case["latent"]
    length = case["caption"]
    mask = torch.tensor([[int(i < n) for i in range(length)] for n in case["lengths"]])
    values = {
        "hidden_states": tiny.normal((3, 4, height, width), case["seed"] + 1),
        "encoder_hidden_states": tiny.normal(
            (3, length, model.config.caption_channels), case["seed"] + 2
        ),
        "encoder_attention_mask": mask,
        "timestep": torch.tensor(case["timestep"]),
    }
    if model.use_additional_conditions:
        values["resolution"] = torch.tensor(RESOLUTION)
        values["aspect_ratio"] = torch.tensor([[h / w] for h, w in RESOLUTION])
    return values


def forward(model, values):
    """Run the model as the pipeline calls it."""
    values = dict(values)
    added = {name: values.pop(name, None) for name in ("resolution", "aspect_ratio")}
    return model(**values, added_cond_kwargs=added, return_dict=False)[0]


def watch(model, block):
    """Record what the given block receives and returns; the dict is filled by the next forward."""
    seen = {}

    def hook(_module, positional, named, output):
        seen["hidden_states"] = positional[0].detach().clone()
        # The six modulation rows of all layers, before the block adds its own table: [B, 6 * width].
        seen["timestep"] = named["timestep"].detach().clone()
        seen["encoder_hidden_states"] = named["encoder_hidden_states"].detach().clone()
        seen["encoder_attention_bias"] = named["encoder_attention_mask"].detach().clone()
        seen["output"] = output.detach().clone()

    model.transformer_blocks[block].register_forward_hook(hook, with_kwargs=True)
    return seen


def precision(case, values, cotangent, result):
    """How far float32 is from float64: relative norm error of output and of the worst gradient.

    Key biases are left out: softmax does not see them, so their true gradient is zero and
    float32 holds only rounding.
    """
    double = tiny.randomise(PixArtTransformer2DModel(**case["config"]), case["seed"]).double()
    wide = {k: v.double() if v.is_floating_point() else v for k, v in values.items()}
    wide["hidden_states"] = wide["hidden_states"].detach().requires_grad_()
    output, _, grads = tiny.gradients(double, forward(double, wide), cotangent.double())
    off = ((result[0] - output).norm() / output.norm()).item()
    seen = [name for name in grads if not name.endswith("to_k.bias")]
    worst = max(((result[2][n] - grads[n]).norm() / grads[n].norm()).item() for n in seen)
    return off, worst


def make(name, case):
    """All tensors of one case, and its config."""
    block = case["config"]["num_layers"] - 1
    model = tiny.randomise(PixArtTransformer2DModel(**case["config"]), case["seed"])
    seen = watch(model, block)
    values = inputs(case, model)
    values["hidden_states"].requires_grad_()
    shape = (3, 8, *case["latent"])
    cotangent = tiny.normal(shape, case["seed"] + 3)
    result = tiny.gradients(model, forward(model, values), cotangent)
    off, worst = precision(case, values, cotangent, result)
    print(f"{name}: float32 against float64: output {off:.1e}, worst gradient {worst:.1e}")
    tensors = {
        **tiny.prefixed("weights", dict(model.named_parameters())),
        **tiny.prefixed("inputs", values),
        **tiny.prefixed(f"block.{block}", seen),
        **tiny.prefixed("gradients", {key: tiny.sketch(value) for key, value in result[2].items()}),
        "output": result[0],
        "cotangent": cotangent,
        "loss": result[1],
        "input_gradient": values["hidden_states"].grad,
    }
    return tiny.prefixed(name, tensors), {**tiny.plain_config(model), "block": block}


def main():
    """Write both cases into one file."""
    tiny.write_cases("pixart_transformer", CASES, make)


if __name__ == "__main__":
    main()
