"""Whether diffusers means the same by a LoRA that `moviola export` wrote as we do.

`python lora_export_parity.py MODEL LORA MERGED`: the base folder, the LoRA under diffusers' names, and the folder that `moviola export --as folder` wrote of
the same run. The base with the LoRA loaded must predict what the merged transformer predicts, and something else than the base.
"""

import sys

import torch
from diffusers import WanPipeline, WanTransformer3DModel


def main():
    """Compare one prediction of the three."""
    model, lora, merged = sys.argv[1:4]
    pipeline = WanPipeline.from_pretrained(model, torch_dtype=torch.float32)
    draws, config = torch.Generator().manual_seed(0), pipeline.transformer.config
    inputs = dict(
        hidden_states=torch.randn(1, config.in_channels, 2, 6, 6, generator=draws),
        timestep=torch.tensor([500.0]),
        encoder_hidden_states=torch.randn(1, 8, config.text_dim, generator=draws),
        return_dict=False,
    )
    with torch.no_grad():
        plain = pipeline.transformer(**inputs)[0]
        pipeline.load_lora_weights(lora)
        tuned = pipeline.transformer(**inputs)[0]
        whole = WanTransformer3DModel.from_pretrained(merged, subfolder="transformer")(**inputs)[0]
    change = ((tuned - plain).norm() / plain.norm()).item()
    off = ((tuned - whole).norm() / whole.norm()).item()
    print(f"the LoRA changes the prediction by {change:.1e} of its norm; merged by moviola it is off by {off:.1e}")
    if not (change > 1e-3 and off < 1e-4):
        sys.exit("diffusers and moviola mean different things by this LoRA")


if __name__ == "__main__":
    main()
