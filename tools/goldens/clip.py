"""CLIP vision encoders -> goldens/clip.safetensors, cases `gelu` (as Wan has it) and `quick` (the first CLIP).

The picture of `gelu` is no whole number of patches. Kept are the states that Wan's image-to-video pipeline reads,
`hidden_states[-2]`.
"""

import tiny
import torch
from transformers import CLIPVisionConfig, CLIPVisionModel

CASES = {
    "gelu": CLIPVisionConfig(
        hidden_size=12, intermediate_size=17, num_hidden_layers=3, num_attention_heads=3, image_size=14, patch_size=4,
        hidden_act="gelu", layer_norm_eps=1e-5,
    ),
    "quick": CLIPVisionConfig(
        hidden_size=10, intermediate_size=13, num_hidden_layers=2, num_attention_heads=2, image_size=10, patch_size=5,
        hidden_act="quick_gelu", layer_norm_eps=1e-3,
    ),
}


def main():
    """Write weights, pixels and states of both cases."""
    tensors, configs = {}, {}
    for seed, (case, config) in enumerate(CASES.items(), start=3300):
        model = tiny.randomise(CLIPVisionModel(config), seed)
        pixels = tiny.normal((2, 3, config.image_size, config.image_size), seed + 50)
        with torch.no_grad():
            # A class embedding around one, as a norm's weight, would hide in the norm that follows.
            model.embeddings.class_embedding.copy_(tiny.normal((config.hidden_size,), seed + 60))
            states = model(pixel_values=pixels, output_hidden_states=True).hidden_states
        assert len(states) == config.num_hidden_layers + 1
        # The names of published files.
        weights = {f"vision_model.{name}": value for name, value in model.state_dict().items()}
        tensors |= tiny.prefixed(f"{case}.weights", weights)
        tensors |= {f"{case}.pixels": pixels, f"{case}.states": states[-2]}
        configs[case] = tiny.plain_config(model)
    tiny.write(tiny.GOLDENS / "clip.safetensors", tensors, configs)


if __name__ == "__main__":
    main()
