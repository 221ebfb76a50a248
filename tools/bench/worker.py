"""The PyTorch side of `cargo xtask bench`.

Says hello with its versions and cases, then answers one line of JSON per request:
{"case": "...", "repeat": n} -> {"case": "...", "seconds": [...], "peak_rss_bytes": n, "held_bytes": n}.
`held_bytes` is what a training holds beside activations: program, weights, gradients, optimizer.
The work is written as a user of PyTorch and diffusers would write it: eager, with their own fused
functions, without gradients where none are asked for.
"""

import argparse
import gc
import importlib.metadata
import json
import os
import sys
import time

import torch
import torch.nn.functional as F

# A case is a function that makes its data and returns the work of one call.
CASES = {}


def case(name):
    def register(prepare):
        CASES[name] = prepare
        return prepare

    return register


def without_gradients(call):
    def run():
        with torch.inference_mode():
            return call()

    return run


def linear(dtype):
    x = torch.randn(2048, 1536, dtype=dtype)
    layer = torch.nn.Linear(1536, 8960, dtype=dtype)
    return without_gradients(lambda: layer(x))


@case("linear_2048x1536x8960_f32")
def linear_f32():
    return linear(torch.float32)


@case("linear_2048x1536x8960_bf16")
def linear_bf16():
    return linear(torch.bfloat16)


@case("linear_2048x1536x8960_int8")
def linear_int8():
    """Weights int8 per output, activations rounded as they come: one scale for all of them."""
    x, weight = torch.randn(2048, 1536), torch.randn(8960, 1536)
    scales = weight.abs().amax(1) / 127
    zeros = torch.zeros(8960, dtype=torch.long)
    weight = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, torch.randn(8960))
    return without_gradients(lambda: torch.ops.quantized.linear_dynamic(x, packed, False))


@case("attention_bf16_12x2048x128_forward")
def attention_forward_bf16():
    q, k, v = (torch.randn(1, 12, 2048, 128, dtype=torch.bfloat16) for _ in range(3))
    return without_gradients(lambda: F.scaled_dot_product_attention(q, k, v))


@case("attention_12x2048x128_forward")
def attention_forward():
    q, k, v = (torch.randn(1, 12, 2048, 128) for _ in range(3))
    return without_gradients(lambda: F.scaled_dot_product_attention(q, k, v))


@case("attention_12x2048x128_forward_backward")
def attention_forward_backward():
    q, k, v = (torch.randn(1, 12, 2048, 128, requires_grad=True) for _ in range(3))
    upstream = torch.randn(1, 12, 2048, 128)

    def run():
        out = F.scaled_dot_product_attention(q, k, v)
        return torch.autograd.grad(out, (q, k, v), upstream)

    return run


@case("gelu_tanh_2048x8960")
def gelu_tanh():
    x = torch.randn(2048, 8960)
    return without_gradients(lambda: F.gelu(x, approximate="tanh"))


@case("gelu_erf_2048x8960")
def gelu_erf():
    x = torch.randn(2048, 8960)
    return without_gradients(lambda: F.gelu(x))


@case("layer_norm_modulate_2048x1536")
def layer_norm_modulate():
    x = torch.randn(1, 2048, 1536)
    scale, shift = torch.randn(1, 1, 1536), torch.randn(1, 1, 1536)
    return without_gradients(lambda: F.layer_norm(x, (1536,), eps=1e-6) * (1 + scale) + shift)


@case("conv2d_3x3_128_256")
def conv2d():
    x = torch.randn(1, 128, 256, 256)
    layer = torch.nn.Conv2d(128, 128, 3, padding=1)
    return without_gradients(lambda: layer(x))


def pixart(dtype):
    import diffusers
    from diffusers import PixArtTransformer2DModel

    diffusers.utils.logging.set_verbosity_error()  # It warns about float32 modules; there are none.
    model = PixArtTransformer2DModel(
        num_attention_heads=16,
        attention_head_dim=72,
        in_channels=4,
        out_channels=8,
        num_layers=4,
        cross_attention_dim=1152,
        caption_channels=4096,
        patch_size=2,
        sample_size=64,
        use_additional_conditions=False,
    )
    model = model.to(dtype).eval()
    latents = torch.randn(2, 4, 64, 64, dtype=dtype)
    caption = torch.randn(2, 120, 4096, dtype=dtype)
    mask = torch.ones(2, 120, dtype=dtype)
    timestep = torch.tensor([500, 500])
    conditions = {"resolution": None, "aspect_ratio": None}

    def run():
        return model(
            latents,
            encoder_hidden_states=caption,
            encoder_attention_mask=mask,
            timestep=timestep,
            added_cond_kwargs=conditions,
            return_dict=False,
        )[0]

    return without_gradients(run)


@case("pixart_xl_4_layers_b2_1024_f32")
def pixart_f32():
    return pixart(torch.float32)


@case("pixart_xl_4_layers_b2_1024_bf16")
def pixart_bf16():
    return pixart(torch.bfloat16)


def wan_model(layers):
    """Wan-1.3B with so many of its 30 layers."""
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=12,
        attention_head_dim=128,
        in_channels=16,
        out_channels=16,
        text_dim=4096,
        freq_dim=256,
        ffn_dim=8960,
        num_layers=layers,
    )


def wan(dtype):
    model = wan_model(2).eval()
    for name, parameter in model.named_parameters():
        # What `from_pretrained` would keep in float32.
        if not any(module in name.split(".") for module in model._keep_in_fp32_modules):
            parameter.data = parameter.data.to(dtype)
    latents = torch.randn(1, 16, 5, 30, 52, dtype=dtype)
    text = torch.randn(1, 512, 4096, dtype=dtype)
    timestep = torch.tensor([500.0])

    def run():
        return model(latents, timestep=timestep, encoder_hidden_states=text, return_dict=False)[0]

    return without_gradients(run)


@case("wan_1_3b_2_layers_1950_f32")
def wan_f32():
    return wan(torch.float32)


@case("wan_1_3b_2_layers_1950_bf16")
def wan_bf16():
    return wan(torch.bfloat16)


def wan_training(layers, checkpointing):
    """One step of flow matching: noise, forward, backward, AdamW."""
    import diffusers

    _ = diffusers.WanTransformer3DModel  # Diffusers imports a model when it is first named.
    program = resident_bytes("VmRSS:")
    model = wan_model(layers).train()
    weights = sum(parameter.nbytes for parameter in model.parameters())
    if checkpointing:
        model.enable_gradient_checkpointing()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    latents = torch.randn(1, 16, 5, 30, 52)
    text = torch.randn(1, 512, 4096)

    def run():
        noise = torch.randn_like(latents)
        level = torch.sigmoid(torch.randn(1))
        noisy = (1 - level) * latents + level * noise
        said = model(noisy, timestep=level * 1000, encoder_hidden_states=text, return_dict=False)[0]
        loss = F.mse_loss(said, noise - latents)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    # A gradient and two moments for each weight.
    run.held_bytes = None if program is None else program + 4 * weights
    return run


@case("wan_1_3b_2_layers_training_step")
def wan_training_step():
    return wan_training(2, checkpointing=False)


@case("wan_1_3b_8_layers_training_ours_per_block_theirs_whole")
def wan_training_whole():
    return wan_training(8, checkpointing=False)


@case("wan_1_3b_8_layers_training_both_per_block")
def wan_training_checkpointing():
    return wan_training(8, checkpointing=True)


@case("vae_decode_512")
def vae_decode():
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(128, 256, 512, 512),
        layers_per_block=2,
        latent_channels=4,
        norm_num_groups=32,
        sample_size=512,
    ).eval()
    # A pipeline that only decodes does not keep the encoder.
    model.encoder = None
    latents = torch.randn(1, 4, 64, 64)
    return without_gradients(lambda: model.decode(latents, return_dict=False)[0])


def wan_vae_decode(latent_frames):
    from diffusers import AutoencoderKLWan

    model = AutoencoderKLWan().eval()
    model.encoder = None
    latents = torch.randn(1, 16, latent_frames, 16, 16)
    return without_gradients(lambda: model.decode(latents, return_dict=False)[0])


@case("wan_vae_decode_9_frames")
def wan_vae_decode_9_frames():
    return wan_vae_decode(3)


@case("wan_vae_decode_17_frames")
def wan_vae_decode_17_frames():
    return wan_vae_decode(5)


def resident_bytes(key):
    """A figure of this process's memory; None where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith(key):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def hello():
    names = ["torch", "diffusers", "transformers"]
    version = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return {"version": version, "cases": list(CASES)}


class Worker:
    """Keeps the work of the case that was asked for last."""

    def __init__(self):
        self.name = None
        self.work = None

    def prepare(self, name):
        if name == self.name:
            return
        self.name, self.work = None, None
        gc.collect()
        torch.manual_seed(0)
        self.work = CASES[name]()
        self.work()  # The first call sets things up that no later one does.
        self.name = name

    def answer(self, request):
        name, repeat = request["case"], request["repeat"]
        if name not in CASES:
            return {"case": name, "error": f"unknown case; known are {', '.join(CASES)}"}
        self.prepare(name)
        seconds = []
        for _ in range(repeat):
            start = time.perf_counter()
            result = self.work()
            seconds.append(time.perf_counter() - start)
            del result
        return {
            "case": name,
            "seconds": seconds,
            "peak_rss_bytes": resident_bytes("VmHWM:"),
            "held_bytes": getattr(self.work, "held_bytes", None),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    # Only answers go to the pipe; whatever libraries print goes to the terminal.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message):
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()

    say(hello())
    worker = Worker()
    for line in sys.stdin:
        say(worker.answer(json.loads(line)))


if __name__ == "__main__":
    main()
