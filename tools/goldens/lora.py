"""One LoRA of a tiny Wan in four dialects, two more files, and what diffusers and PEFT make of them.

`goldens/lora/` gets the files as users have them, `goldens/lora.safetensors` the weights before and after:

- `wan_diffusers.safetensors`, saved by `WanPipeline.save_lora_weights`, alphas in its metadata;
- `wan_peft/`, saved by PEFT, alphas in `adapter_config.json`;
- `wan_comfy.safetensors` (`diffusion_model.`, original names, `lora_down`, `.alpha`);
- `wan_kohya.safetensors` (`lora_unet_`, underscores, `.alpha`);
- `wan_extra.safetensors`, another LoRA with original names for what is outside of the blocks, without alphas and with changes of
  biases;
- `pixart_peft/`, one for `pixart-tiny` with a convolution.
"""

import json
import shutil
import struct

import tiny
import torch
from diffusers import PixArtTransformer2DModel, WanPipeline, WanTransformer3DModel
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file

SCALE = 0.7
FOLDER = tiny.GOLDENS / "lora"

# Wan's own names within a block, and those of diffusers.
BLOCK = {
    **{f"self_attn.{a}": f"attn1.{b}" for a, b in zip("qkvo", ["to_q", "to_k", "to_v", "to_out.0"])},
    **{f"cross_attn.{a}": f"attn2.{b}" for a, b in zip("qkvo", ["to_q", "to_k", "to_v", "to_out.0"])},
    "cross_attn.k_img": "attn2.add_k_proj",
    "cross_attn.v_img": "attn2.add_v_proj",
    "ffn.0": "ffn.net.0.proj",
    "ffn.2": "ffn.net.2",
}
EXTRA = {
    "time_embedding.0": "condition_embedder.time_embedder.linear_1",
    "time_embedding.2": "condition_embedder.time_embedder.linear_2",
    "time_projection.1": "condition_embedder.time_proj",
    "text_embedding.0": "condition_embedder.text_embedder.linear_1",
    "text_embedding.2": "condition_embedder.text_embedder.linear_2",
    "img_emb.proj.1": "condition_embedder.image_embedder.ff.net.0.proj",
    "img_emb.proj.3": "condition_embedder.image_embedder.ff.net.2",
    "head.head": "proj_out",
    "blocks.0.self_attn.q": "blocks.0.attn1.to_q",
}


def wan():
    """A Wan image-to-video transformer, so that it has every kind of layer."""
    return WanTransformer3DModel(
        num_attention_heads=1, attention_head_dim=12, in_channels=3, out_channels=3, text_dim=6, freq_dim=8, ffn_dim=14,
        num_layers=1, cross_attn_norm=True, qk_norm="rms_norm_across_heads", image_dim=5, added_kv_proj_dim=12,
        rope_max_seq_len=8,
    )


def adapter_config(modules, **more):
    """PEFT's config: rank 2 and alpha 3, but for some modules."""
    return LoraConfig(
        r=2, lora_alpha=3, target_modules=modules, rank_pattern={"ffn.net.2": 3},
        alpha_pattern={"attn2.to_k": 0.5, "ffn.net.0.proj": 5}, **more,
    )


def randomise_adapter(model, seed):
    """Random numbers for both matrices of every pair."""
    draws = tiny.generator(seed)
    for name, parameter in sorted(model.named_parameters()):
        if "lora_" in name:
            with torch.no_grad():
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=draws))


def stable(path):
    """Order the metadata of a file, which the library does at random."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
    return path


def stable_config(folder):
    """Order the lists of PEFT's config, which are sets to it, and drop its notes."""
    path = folder / "adapter_config.json"
    config = {key: sorted(v) if isinstance(v, list) else v for key, v in json.loads(path.read_text()).items()}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "README.md").unlink(missing_ok=True)
    stable(folder / "adapter_model.safetensors")


def fused(path, scale):
    """The weights of a Wan with the file loaded and fused by diffusers."""
    model = tiny.randomise(wan(), 3500)
    pipeline = WanPipeline(None, None, None, None, transformer=model)
    pipeline.load_lora_weights(str(path))
    pipeline.fuse_lora(lora_scale=scale)
    layers = {name.replace(".base_layer", ""): value for name, value in model.state_dict().items()}
    return {name: value for name, value in layers.items() if "lora_" not in name}


def write_dialects():
    """The same LoRA four times; returns the paths that diffusers can read."""
    model = tiny.randomise(wan(), 3500)
    modules = [f"blocks.0.{name}" for name in BLOCK.values()]
    peft = get_peft_model(model, adapter_config(modules))
    randomise_adapter(peft, 3501)
    peft.save_pretrained(FOLDER / "wan_peft")
    stable_config(FOLDER / "wan_peft")
    layers = get_peft_model_state_dict(peft)
    layers = {name.removeprefix("base_model.model."): value for name, value in layers.items()}
    config = peft.peft_config["default"].to_dict()
    config = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    path = FOLDER / "wan_diffusers.safetensors"
    WanPipeline.save_lora_weights(
        FOLDER, transformer_lora_layers=layers, weight_name=path.name,
        transformer_lora_adapter_metadata=config,
    )
    comfy, kohya = {}, {}
    for theirs, ours in BLOCK.items():
        alpha = {"attn2.to_k": 0.5, "ffn.net.0.proj": 5.0}.get(ours, 3.0)
        down, up = (layers[f"blocks.0.{ours}.lora_{side}.weight"].contiguous() for side in "AB")
        comfy_name = f"diffusion_model.blocks.0.{theirs}"
        kohya_name = "lora_unet_blocks_0_" + theirs.replace(".", "_")
        for target, name in [(comfy, comfy_name), (kohya, kohya_name)]:
            target |= {f"{name}.lora_down.weight": down.clone(), f"{name}.lora_up.weight": up.clone()}
            target[f"{name}.alpha"] = torch.tensor(alpha)
    save_file(comfy, FOLDER / "wan_comfy.safetensors")
    save_file(kohya, FOLDER / "wan_kohya.safetensors")
    return [stable(FOLDER / f"wan_{dialect}.safetensors") for dialect in ["diffusers", "comfy", "kohya"]]


def write_extra():
    """A LoRA without alphas of other layers, with changes of biases."""
    model = wan()
    tensors, seed = {}, 3510
    for theirs, ours in EXTRA.items():
        outputs, inputs = model.get_submodule(ours).weight.shape
        seed += 1
        tensors[f"diffusion_model.{theirs}.lora_A.weight"] = tiny.normal((2, inputs), seed, 0.5)
        tensors[f"diffusion_model.{theirs}.lora_B.weight"] = tiny.normal((outputs, 2), seed + 50, 0.5)
        tensors[f"diffusion_model.{theirs}.diff_b"] = tiny.normal((outputs,), seed + 100, 0.5)
    save_file(tensors, FOLDER / "wan_extra.safetensors")
    return stable(FOLDER / "wan_extra.safetensors")


def write_pixart():
    """A LoRA of `pixart-tiny` as PEFT saves it, with one of its convolution; returns the merged weights."""
    model = PixArtTransformer2DModel.from_pretrained(tiny.GOLDENS / "pixart-tiny/transformer")
    modules = ["transformer_blocks.1.attn1.to_q", "transformer_blocks.0.attn2.to_out.0", "adaln_single.linear", "pos_embed.proj"]
    peft = get_peft_model(model, LoraConfig(r=3, lora_alpha=4, target_modules=modules, use_rslora=True))
    randomise_adapter(peft, 3520)
    peft.save_pretrained(FOLDER / "pixart_peft")
    stable_config(FOLDER / "pixart_peft")
    assert isinstance(peft, PeftModel)
    merged = peft.merge_and_unload()
    return {f"{name}.weight": merged.get_submodule(name).weight for name in modules}


def main():
    """Write files and weights, and see that the dialects agree."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    first, *others = [fused(path, SCALE) for path in write_dialects()]
    for other in others:
        off = max((first[name] - other[name]).abs().max().item() for name in first)
        print(f"lora: diffusers makes of another dialect what is off by {off:.1e}")
    base = tiny.randomise(wan(), 3500).state_dict()
    extra = fused(write_extra(), SCALE)
    changed = lambda weights: {n: w for n, w in weights.items() if not torch.equal(w, base[n])}
    tensors = {
        **tiny.prefixed("wan.weights", base),
        **tiny.prefixed("wan.fused", changed(first)),
        **tiny.prefixed("wan.extra", changed(extra)),
        **tiny.prefixed("pixart.fused", write_pixart()),
    }
    tiny.write(tiny.GOLDENS / "lora.safetensors", tensors, {"scale": SCALE})


if __name__ == "__main__":
    main()
