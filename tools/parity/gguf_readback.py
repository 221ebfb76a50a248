"""Whether ggml's own Python package reads what `moviola export --as gguf` wrote.

`python gguf_readback.py FILE.gguf FILE.safetensors`: the file, and the same transformer as `export --as file --dialect comfyui` wrote it. Both must hold the same
tensors, whose shapes are those that ComfyUI-GGUF would restore, and values that are off by no more than their type costs. Needs gguf, numpy and safetensors.
"""

import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from safetensors.numpy import load_file

# What rounding may cost: the norm of the difference over the norm.
BOUNDS = {Kind.F32: 0.0, Kind.F16: 1e-3, Kind.BF16: 8e-3, Kind.Q8_0: 1e-2, Kind.Q4_K: 0.12}


def values(tensor):
    """The values of a tensor in f32, in the shape of the file."""
    shape = [int(size) for size in reversed(tensor.shape)]
    if tensor.tensor_type in (Kind.F32, Kind.F16):
        return tensor.data.astype(np.float32).reshape(shape)
    return gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape)


def main():
    """Compare all tensors of the two files."""
    reader, exact = gguf.GGUFReader(sys.argv[1]), load_file(sys.argv[2])
    told = {key: reader.get_field(key) for key in ("general.architecture", "general.file_type")}
    if any(field is None for field in told.values()):
        sys.exit(f"the metadata lack one of {sorted(told)}")
    names = {tensor.name for tensor in reader.tensors}
    if names != exact.keys():
        sys.exit(f"only one of the files holds {sorted(names ^ exact.keys())}")
    worst = {}
    for tensor in reader.tensors:
        own, field = values(tensor), reader.get_field(f"comfy.gguf.orig_shape.{tensor.name}")
        if field is not None:
            own = own.reshape([int(field.parts[at][0]) for at in field.data])
        wanted = exact[tensor.name].astype(np.float32)
        if own.shape != wanted.shape:
            sys.exit(f"{tensor.name} has shape {own.shape}, not {wanted.shape}")
        off = np.linalg.norm(own - wanted) / max(np.linalg.norm(wanted), 1e-12)
        worst[tensor.tensor_type] = max(worst.get(tensor.tensor_type, 0.0), float(off))
        if off > BOUNDS[tensor.tensor_type]:
            sys.exit(f"{tensor.name} in {tensor.tensor_type.name} is off by {off:.1e}")
    architecture = told["general.architecture"].contents()
    print(f"{architecture}: {len(names)} tensors", *(f"{kind.name} {off:.1e}" for kind, off in worst.items()))


if __name__ == "__main__":
    main()
