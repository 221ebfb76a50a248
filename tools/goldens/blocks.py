"""GGUF files by ggml's own Python package: blocks of every format with the values they stand for, and a small Wan
whose matrices are blocks under the names that stable-diffusion.cpp and ComfyUI know.

It needs numpy and gguf, nothing else.
"""

import json
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "gguf"

# What ggml's own C code (quantize_row_q4_K_ref, compiled without fused multiply-adds) makes of the two rows of
# `nearest`; the Python package reads this format and does not write it.
Q4_K = (
    "aa0c9418f1c0e36babc0e966c434ffff03080a09030b09090a0b0f05070d020804070900030206040c050d0508070703"
    "85cf864b9d77b54cc8868cb85b549d7477506faafc11daa7cf814b6e330a74895697c10af64749b59fcbab977458a417"
    "77ab48b7bb8675a5ac77f5d0b3c8c93c9f7468955a29c9606ab9a21c47061996592705f55a987626a58ef9b80c767576"
    "b50c2c18ecaaecb1eba7f3b1f5edeffd62603688423ed9752f1153121bb46a48744772ea634329956e8c0057769f8554"
    "bdb860d3a8794343ba09daab68d58d3c5f3a39e97a61a8974a3a07a763aa7727868db65a5076ab22fc67566d374c679a"
    "ac6c68910e77bde6772959cff3771a8a59bab80e878f846b4a8995b77447a82954557187f4aab668366756f4d9b57b20"
)

# Two-byte scales of a block: where they are, and about how large.
SHORTS = {
    Kind.Q4_0: [(0, 0.01)],
    Kind.Q4_1: [(0, 0.01), (2, -0.08)],
    Kind.Q5_0: [(0, 0.006)],
    Kind.Q5_1: [(0, 0.006), (2, -0.1)],
    Kind.Q8_0: [(0, 0.0008)],
    Kind.Q4_K: [(0, 0.0003), (2, 0.002)],
    Kind.Q5_K: [(0, 0.00015), (2, 0.002)],
    Kind.Q6_K: [(208, 0.00004)],
}


def blocks(kind, shape, seed):
    """Bytes of a matrix: anything but for the scales, some of which are zero, negative or subnormal."""
    size, count = gguf.GGML_QUANT_SIZES[kind]
    draws = np.random.default_rng(seed)
    rows = draws.integers(0, 256, (shape[0], shape[1] // size, count), dtype=np.uint8)
    for at, scale in SHORTS[kind]:
        values = scale * draws.uniform(0.25, 1.75, rows.shape[:2])
        rows[:, :, at : at + 2] = values.astype(np.float16)[..., None].view(np.uint8)
    return rows.reshape(shape[0], -1)


def odd(rows, kind):
    """The same with one scale below zero and one that is subnormal."""
    size, count = gguf.GGML_QUANT_SIZES[kind]
    rows = rows.reshape(rows.shape[0], -1, count).copy()
    at = SHORTS[kind][0][0]
    rows[0, 0, at : at + 2] = np.array([-0.01], np.float16).view(np.uint8)
    rows[-1, -1, at : at + 2] = np.array([3e-7], np.float16).view(np.uint8)
    return rows.reshape(rows.shape[0], -1)


def write(path, architecture, tensors, shapes=None):
    """A file of (name, values, kind); kind is given where values are bytes of blocks."""
    writer = gguf.GGUFWriter(path, architecture)
    for name, shape in (shapes or {}).items():
        writer.add_array(f"comfy.gguf.orig_shape.{name}", shape)
    for name, values, kind in tensors:
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def formats():
    """Blocks of every format, each with its values in f32; and f32 with what the package rounds it to."""
    tensors = []
    for seed, kind in enumerate(SHORTS):
        rows = odd(blocks(kind, (2, 256), seed), kind)
        name = kind.name.lower()
        tensors += [
            (f"{name}.weight", rows, kind),
            (f"{name}.values", gguf.dequantize(rows, kind), None),
        ]
    draws = np.random.default_rng(100)
    source = (0.05 * draws.standard_normal((2, 256))).astype(np.float32)
    source[0, 32:64] = 0.0
    tensors.append(("nearest.values", source, None))
    for kind in [Kind.Q8_0, Kind.Q4_0]:
        tensors.append((f"nearest_{kind.name.lower()}.weight", gguf.quantize(source, kind), kind))
    reference = np.frombuffer(bytes.fromhex(Q4_K), np.uint8).reshape(2, -1)
    tensors.append(("nearest_q4_k.weight", reference, Kind.Q4_K))
    write(GOLDENS / "blocks.gguf", "blocks", tensors)


WIDTH, INNER, TEXT, FREQUENCIES = 32, 256, 8, 32


def wan():
    """A Wan of one block, 32 wide, in Wan's own names; leading dims are one as programs of four dims have them."""
    draws = np.random.default_rng(7)

    def floats(*shape, scale=None, about=0.0):
        scale = scale or 1.0 / np.sqrt(np.prod(shape[1:]))
        return (about + scale * draws.standard_normal(shape)).astype(np.float32)

    tensors = []

    def add(name, values, kind=None):
        tensors.append((name, values, kind))

    def linear(name, outputs, inputs, kind):
        weight = f"{name}.weight"
        if kind in SHORTS:
            add(weight, blocks(kind, (outputs, inputs), len(tensors)), kind)
        else:
            add(weight, floats(outputs, inputs).astype(kind))
        add(f"{name}.bias", floats(outputs, scale=0.1))

    patch = floats(WIDTH * 4, 1, 2, 2, scale=0.25)
    add("patch_embedding.weight", patch.astype(np.float16))
    add("patch_embedding.bias", floats(WIDTH, scale=0.1))
    linear("text_embedding.0", WIDTH, TEXT, np.float16)
    linear("text_embedding.2", WIDTH, WIDTH, Kind.Q5_1)
    linear("time_embedding.0", WIDTH, FREQUENCIES, Kind.Q5_0)
    linear("time_embedding.2", WIDTH, WIDTH, Kind.Q4_1)
    linear("time_projection.1", 6 * WIDTH, WIDTH, Kind.Q4_0)
    kinds = [Kind.Q8_0, Kind.Q4_0, Kind.Q8_0, Kind.Q4_1]
    for attention in ["self_attn", "cross_attn"]:
        for part, kind in zip("qkvo", kinds):
            linear(f"blocks.0.{attention}.{part}", WIDTH, WIDTH, kind)
        for part in "qk":
            add(f"blocks.0.{attention}.norm_{part}.weight", floats(WIDTH, scale=0.2, about=1.0))
    add("blocks.0.norm3.weight", floats(WIDTH, scale=0.2, about=1.0))
    add("blocks.0.norm3.bias", floats(WIDTH, scale=0.1))
    linear("blocks.0.ffn.0", INNER, WIDTH, Kind.Q8_0)
    linear("blocks.0.ffn.2", WIDTH, INNER, Kind.Q4_K)
    add("blocks.0.modulation", floats(6, WIDTH, scale=0.3))
    linear("head.head", 16, WIDTH, Kind.Q8_0)
    add("head.modulation", floats(1, 2, WIDTH, scale=0.3))
    shapes = {"patch_embedding.weight": [WIDTH, 4, 1, 2, 2]}
    write(GOLDENS / "wan.gguf", "wan", tensors, shapes)
    folder = GOLDENS.parent / "wan-tiny" / "transformer" / "config.json"
    config = json.loads(folder.read_text())
    config |= {"attention_head_dim": WIDTH // 2, "ffn_dim": INNER, "freq_dim": FREQUENCIES}
    (GOLDENS / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    formats()
    wan()
