"""Several steps of PyTorch's optimizers on three small parameters -> goldens/optimizers.safetensors."""

from unittest import mock

import tiny
import torch

STEPS = 5
SHAPES = {"tall": (9, 4), "wide": (3, 11), "vector": (7,)}
ADAMW = {"betas": (0.85, 0.97), "eps": 1e-6, "weight_decay": 0.1}
MUON = {"momentum": 0.9, "weight_decay": 0.05, "ns_steps": 5}
RATES = [0.02, 0.05, 0.03, 0.01, 0.04]


def initial():
    """The parameters before the first step."""
    return {name: tiny.normal(shape, 10 + index) for index, (name, shape) in enumerate(SHAPES.items())}


def gradient(name, step):
    """The gradient of one parameter at one step; sizes differ by orders, as real ones do."""
    scale = [1.0, 1e-3, 30.0, 0.1, 2.0][step]
    return tiny.normal(SHAPES[name], 100 + 10 * step + list(SHAPES).index(name), scale)


def run(make, names):
    """The parameters after every step."""
    parameters = {name: torch.nn.Parameter(initial()[name]) for name in names}
    optimizer = make(parameters.values())
    history = {name: [] for name in names}
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATES[step]
        for name, parameter in parameters.items():
            parameter.grad = gradient(name, step)
        optimizer.step()
        for name, parameter in parameters.items():
            history[name].append(parameter.detach().clone())
    return {name: torch.stack(values) for name, values in history.items()}


def main():
    """Write goldens/optimizers.safetensors."""
    tensors = {f"initial.{name}": value for name, value in initial().items()}
    for name in SHAPES:
        tensors[f"gradients.{name}"] = torch.stack([gradient(name, step) for step in range(STEPS)])
    matrices = ["tall", "wide"]
    runs = {
        "adamw": run(lambda p: torch.optim.AdamW(p, lr=1.0, **ADAMW), list(SHAPES)),
        "sgd": run(lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.8), list(SHAPES)),
    }
    # PyTorch iterates in bfloat16; with this the same code does it in float32.
    with mock.patch.object(torch, "bfloat16", torch.float32):
        for match in ["original", "match_rms_adamw"]:
            runs[f"muon.{match}"] = run(
                lambda p: torch.optim.Muon(p, lr=1.0, adjust_lr_fn=match, **MUON), matrices
            )
    for kind, values in runs.items():
        tensors |= {f"{kind}.{name}": value for name, value in values.items()}
    config = {"rates": RATES, "adamw": ADAMW, "muon": MUON, "sgd": {"momentum": 0.8}}
    tiny.write(tiny.GOLDENS / "optimizers.safetensors", tensors, config)


if __name__ == "__main__":
    main()
