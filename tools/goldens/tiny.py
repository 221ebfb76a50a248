"""What every golden script shares: where files go, seeded random weights, byte-stable safetensors.

Importing this module puts torch into the state that all goldens are made in: one thread,
deterministic kernels, float32.
"""

import json
import os
import struct
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
torch.set_default_dtype(torch.float32)

GOLDENS = Path(__file__).resolve().parents[2] / "goldens"

DTYPE_NAMES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def generator(seed):
    """A CPU generator with its own seed, so that no draw depends on what ran before it."""
    return torch.Generator().manual_seed(seed)


def normal(shape, seed, scale=1.0):
    """Seeded normal numbers of the given shape."""
    return scale * torch.randn(shape, generator=generator(seed))


def randomise(module, seed, gain=1.0, bias=0.3):
    """Fill every parameter, those that libraries start at zero or one included.

    Matrices and kernels keep the size of their input (`gain` / sqrt(fan in)); one-dimensional
    weights belong to norms and lie around one; biases and modulation tables get `bias`. So a
    forgotten parameter always shows in the output.
    """
    draws = generator(seed)
    for name, parameter in sorted(module.named_parameters()):
        values = torch.randn(parameter.shape, generator=draws)
        if name.endswith("scale_shift_table") or name.endswith("bias"):
            values = bias * values
        elif parameter.dim() <= 1:
            values = 1.0 + 0.3 * values
        else:
            values = gain * values / parameter[0].numel() ** 0.5
        with torch.no_grad():
            parameter.copy_(values)
    return module.eval()


def write(path, tensors, config):
    """Write a safetensors file whose metadata holds `config` as JSON under the key `config`.

    The header is laid out here, so that equal tensors give equal bytes (the library's writer orders
    metadata by a random hash). Wide elements come first, so that every tensor starts aligned.
    """
    header = {"__metadata__": {"config": json.dumps(config, sort_keys=True)}}
    blobs, offset = [], 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):
        tensor = tensors[name].detach().contiguous()
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(f"tensor {name} of {path.name} is not finite")
        blob = tensor.numpy().tobytes()
        header[name] = {
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


def write_cases(name, cases, make):
    """Write a golden file of what `make(name, case)`, tensors and a config, gives for every case."""
    tensors, configs = {}, {}
    for case in cases:
        made, configs[case] = make(case, cases[case])
        tensors |= made
    write(GOLDENS / f"{name}.safetensors", tensors, configs)


def gradients(model, output, cotangent):
    """The output, the sum of it times the cotangent, and the gradients of that by parameter name."""
    model.zero_grad()
    loss = (output * cotangent).sum()
    loss.backward()
    return output, loss, {name: parameter.grad for name, parameter in model.named_parameters()}


def signs(count):
    """+1 or -1 for each index, by a multiplicative hash that any language can repeat."""
    return torch.tensor([1.0 if (i * 2654435761 >> 16) & 1 else -1.0 for i in range(count)]).double()


def sketch(tensor):
    """A matrix seen from both sides, [rows + columns]; whatever is no matrix stays as it is.

    A matrix that differs has another sketch, which is far smaller than the matrix.
    """
    if tensor.dim() < 2:
        return tensor
    matrix = tensor.detach().reshape(tensor.shape[0], -1).double()
    rows, columns = matrix.shape
    return torch.cat([matrix @ signs(columns), signs(rows) @ matrix]).float()


def numbers(name, count):
    """Numbers in -1..1 that are a function of a name and an index, as `testkit::numbers` has them."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) % 2**64
    x = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift in (30, 27):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(0xBF58476D1CE4E5B9)
    return torch.from_numpy((x >> np.uint64(40)).astype(np.float64) / 2**23 - 1.0)


def projections(tensor, count=3):
    """So many weighed sums of all elements: what differs by a share of its norm differs in them by about as much."""
    flat = tensor.detach().reshape(-1).double()
    return torch.stack([flat @ numbers(f"projection {at}", flat.numel()) for at in range(count)]).float()


def prefixed(prefix, tensors):
    """The same tensors under `prefix.name`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def plain_config(module):
    """A model's config as its `config.json` would hold it, without the library's private keys."""
    values = module.config.to_dict() if hasattr(module.config, "to_dict") else dict(module.config)
    return {key: value for key, value in values.items() if not key.startswith("_")}
