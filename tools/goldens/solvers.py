"""Makes goldens/solvers.safetensors: what the real diffusers schedulers do, step by step.

Run from the root of the repository: python tools/goldens/solvers.py

Every case has a config, a number of steps, random predictions and, where the scheduler draws,
random noise. All of them are stored with the samples that come out, so no network is needed:

    <case>.timesteps [steps]    <case>.initial [2, 7, 3]      <case>.predictions [steps, 2, 7, 3]
    <case>.samples [steps, 2, 7, 3]                           <case>.noises [steps, 2, 7, 3]

The metadata's `config` holds one JSON object per case: `config` (only what differs from the
defaults), `saved` (the file that diffusers itself would write), and the arguments of the run.
Beside them, `draw.*` pins our own counter-based noise, written here a second time in plain Python.

Tolerance: 1e-5 of the standard deviation of each sample.
"""

import json
import math

import tiny  # first: it sets torch up

import diffusers
import numpy as np
import torch
from diffusers.schedulers import (
    scheduling_ddim,
    scheduling_ddpm,
    scheduling_dpmsolver_multistep,
    scheduling_flow_match_euler_discrete,
)

SHAPE = (2, 7, 3)  # batch, tokens, channels: every scheduler here works element by element

DDIM, DDPM = "DDIMScheduler", "DDPMScheduler"
DPM, FLOW = "DPMSolverMultistepScheduler", "FlowMatchEulerDiscreteScheduler"
UNIPC = "UniPCMultistepScheduler"
STABLE_DIFFUSION = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
ZERO_SNR = dict(rescale_betas_zero_snr=True, timestep_spacing="trailing", prediction_type="v_prediction")
WAN = dict(prediction_type="flow_prediction", use_flow_sigmas=True)
TO_LOWEST = dict(final_sigmas_type="sigma_min")
BETAS = [round(0.01 + 0.013 * i, 6) for i in range(20)]
FEW_BETAS = dict(trained_betas=BETAS, num_train_timesteps=20)

# name: (class, options, arguments of the run)
CASES = {
    "ddim.default": (DDIM, {}, dict(steps=10)),
    "ddim.one_step": (DDIM, dict(timestep_spacing="trailing"), dict(steps=1)),
    "ddim.stable_diffusion": (
        DDIM,
        STABLE_DIFFUSION | dict(clip_sample=False, set_alpha_to_one=False, steps_offset=1),
        dict(steps=7),
    ),
    "ddim.zero_snr": (DDIM, STABLE_DIFFUSION | ZERO_SNR | dict(clip_sample=False), dict(steps=5)),
    "ddim.cosine_sample": (
        DDIM,
        dict(beta_schedule="squaredcos_cap_v2", prediction_type="sample", timestep_spacing="linspace"),
        dict(steps=4),
    ),
    "ddim.clip_range": (DDIM, dict(clip_sample_range=2.5), dict(steps=3)),
    "ddim.half_eta": (DDIM, dict(clip_sample=False), dict(steps=6, eta=0.5)),
    "ddim.full_eta": (DDIM, dict(timestep_spacing="trailing"), dict(steps=5, eta=1.0)),
    "ddim.trained_betas": (
        DDIM,
        FEW_BETAS | dict(clip_sample=False),
        dict(steps=5),
    ),
    "ddpm.default": (DDPM, {}, dict(steps=10)),
    "ddpm.small_log": (
        DDPM,
        dict(variance_type="fixed_small_log", prediction_type="v_prediction", timestep_spacing="trailing"),
        dict(steps=5),
    ),
    "ddpm.large_sigmoid": (
        DDPM,
        dict(variance_type="fixed_large", beta_schedule="sigmoid", timestep_spacing="linspace", clip_sample=False),
        dict(steps=6),
    ),
    "ddpm.laplace_sample": (DDPM, dict(beta_schedule="laplace", prediction_type="sample"), dict(steps=4)),
    "ddpm.zero_snr": (DDPM, ZERO_SNR | dict(clip_sample=False), dict(steps=5)),
    "ddpm.offset": (DDPM, dict(steps_offset=1), dict(steps=3)),
    "dpm.default": (DPM, {}, dict(steps=20)),
    "dpm.one_step": (DPM, {}, dict(steps=1)),
    "dpm.two_steps": (DPM, {}, dict(steps=2)),
    "dpm.fourteen_steps": (DPM, dict(solver_order=3), dict(steps=14)),
    "dpm.first": (DPM, dict(solver_order=1), dict(steps=5)),
    "dpm.third": (DPM, dict(solver_order=3), dict(steps=16)),
    "dpm.third_to_the_end": (
        DPM,
        dict(solver_order=3, lower_order_final=False, final_sigmas_type="sigma_min"),
        dict(steps=6),
    ),
    "dpm.second_to_the_end": (
        DPM,
        dict(lower_order_final=False, final_sigmas_type="sigma_min", solver_type="heun"),
        dict(steps=6),
    ),
    "dpm.euler_at_final": (
        DPM,
        dict(euler_at_final=True, lower_order_final=False, final_sigmas_type="sigma_min"),
        dict(steps=5),
    ),
    "dpm.heun": (DPM, dict(solver_type="heun"), dict(steps=8)),
    "dpm.sde": (DPM, dict(algorithm_type="sde-dpmsolver++"), dict(steps=8)),
    "dpm.sde_first": (DPM, dict(algorithm_type="sde-dpmsolver++", solver_order=1), dict(steps=4)),
    "dpm.sde_heun": (DPM, dict(algorithm_type="sde-dpmsolver++", solver_type="heun"), dict(steps=6)),
    "dpm.sde_third": (DPM, dict(algorithm_type="sde-dpmsolver++", solver_order=3), dict(steps=7)),
    "dpm.epsilon": (DPM, dict(algorithm_type="dpmsolver", final_sigmas_type="sigma_min"), dict(steps=8)),
    "dpm.epsilon_third": (
        DPM,
        dict(algorithm_type="dpmsolver", final_sigmas_type="sigma_min", solver_order=3, prediction_type="sample"),
        dict(steps=7),
    ),
    "dpm.epsilon_heun": (
        DPM,
        dict(
            algorithm_type="dpmsolver",
            final_sigmas_type="sigma_min",
            solver_type="heun",
            prediction_type="v_prediction",
        ),
        dict(steps=5),
    ),
    "dpm.epsilon_sde": (DPM, dict(algorithm_type="sde-dpmsolver", final_sigmas_type="sigma_min"), dict(steps=6)),
    "dpm.epsilon_sde_heun": (
        DPM,
        dict(algorithm_type="sde-dpmsolver", final_sigmas_type="sigma_min", solver_type="heun"),
        dict(steps=6),
    ),
    "dpm.leading": (DPM, STABLE_DIFFUSION | dict(timestep_spacing="leading", steps_offset=1), dict(steps=20)),
    "dpm.trailing": (DPM, STABLE_DIFFUSION | dict(timestep_spacing="trailing"), dict(steps=7)),
    "dpm.sample": (DPM, dict(prediction_type="sample"), dict(steps=4)),
    "dpm.zero_snr": (DPM, STABLE_DIFFUSION | ZERO_SNR, dict(steps=6)),
    "dpm.karras": (DPM, STABLE_DIFFUSION | dict(use_karras_sigmas=True), dict(steps=8)),
    "dpm.karras_cosine": (
        DPM,
        dict(beta_schedule="squaredcos_cap_v2", use_karras_sigmas=True, final_sigmas_type="sigma_min"),
        dict(steps=6),
    ),
    "dpm.lambdas": (DPM, STABLE_DIFFUSION | dict(use_lu_lambdas=True, solver_order=3), dict(steps=8)),
    "dpm.exponential": (DPM, STABLE_DIFFUSION | dict(use_exponential_sigmas=True), dict(steps=6)),
    "dpm.cosine_clipped": (
        DPM,
        dict(beta_schedule="squaredcos_cap_v2", lambda_min_clipped=-5.1),
        dict(steps=10),
    ),
    "dpm.clipped_trailing": (
        DPM,
        dict(beta_schedule="squaredcos_cap_v2", lambda_min_clipped=-2.0, timestep_spacing="trailing"),
        dict(steps=12),
    ),
    "dpm.flow": (
        DPM,
        dict(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
        dict(steps=10),
    ),
    "flow.default": (FLOW, {}, dict(steps=10)),
    "flow.one_step": (FLOW, {}, dict(steps=1)),
    "flow.shift": (FLOW, dict(shift=3.0), dict(steps=8)),
    "flow.dynamic": (FLOW, dict(use_dynamic_shifting=True), dict(steps=6, sequence_length=1500)),
    "flow.dynamic_linear": (
        FLOW,
        dict(use_dynamic_shifting=True, time_shift_type="linear", base_shift=0.7, max_shift=2.0),
        dict(steps=5, sequence_length=3000),
    ),
    "flow.terminal": (
        FLOW,
        dict(
            use_dynamic_shifting=True,
            shift_terminal=0.1,
            base_shift=0.95,
            max_shift=2.05,
            base_image_seq_len=1024,
        ),
        dict(steps=7, sequence_length=2000),
    ),
    "flow.karras": (FLOW, dict(use_karras_sigmas=True, shift=2.0), dict(steps=6)),
    "flow.exponential": (FLOW, dict(use_exponential_sigmas=True), dict(steps=6)),
    "flow.stochastic": (FLOW, dict(stochastic_sampling=True, shift=5.0), dict(steps=5)),
    "flow.custom": (
        FLOW,
        dict(use_dynamic_shifting=True),
        dict(sigmas=np.linspace(1.0, 1 / 6, 6).tolist(), sequence_length=4096),
    ),
    "flow.wan": (FLOW, dict(shift=8.0), dict(steps=4)),
    "unipc.default": (UNIPC, {}, dict(steps=10)),
    "unipc.one_step": (UNIPC, {}, dict(steps=1)),
    "unipc.two_steps": (UNIPC, dict(solver_order=3), dict(steps=2)),
    "unipc.first": (UNIPC, dict(solver_order=1, prediction_type="sample"), dict(steps=5)),
    "unipc.third": (UNIPC, STABLE_DIFFUSION | dict(solver_order=3, timestep_spacing="trailing"), dict(steps=8)),
    "unipc.third_to_the_end": (UNIPC, TO_LOWEST | dict(solver_order=3, lower_order_final=False), dict(steps=6)),
    "unipc.bh1": (UNIPC, TO_LOWEST | dict(solver_type="bh1"), dict(steps=6)),
    "unipc.bh1_third": (UNIPC, TO_LOWEST | dict(solver_type="bh1", solver_order=3), dict(steps=7)),
    "unipc.epsilon": (UNIPC, TO_LOWEST | dict(predict_x0=False), dict(steps=6)),
    "unipc.epsilon_third": (
        UNIPC,
        TO_LOWEST | FEW_BETAS | dict(predict_x0=False, solver_order=3, solver_type="bh1", prediction_type="sample"),
        dict(steps=6),
    ),
    "unipc.epsilon_velocity": (
        UNIPC,
        TO_LOWEST | FEW_BETAS | dict(predict_x0=False, prediction_type="v_prediction", solver_type="heun"),
        dict(steps=4),
    ),
    "unipc.leading": (UNIPC, STABLE_DIFFUSION | dict(timestep_spacing="leading", steps_offset=1), dict(steps=5)),
    "unipc.zero_snr": (UNIPC, STABLE_DIFFUSION | ZERO_SNR, dict(steps=5)),
    "unipc.uncorrected": (UNIPC, WAN | dict(disable_corrector=[0, 2, 3], solver_order=3), dict(steps=7)),
    "unipc.karras": (UNIPC, STABLE_DIFFUSION | TO_LOWEST | dict(use_karras_sigmas=True), dict(steps=5)),
    "unipc.exponential": (UNIPC, STABLE_DIFFUSION | dict(use_exponential_sigmas=True, sigma_max=9.0), dict(steps=5)),
    "unipc.wan": (UNIPC, WAN | dict(flow_shift=3.0), dict(steps=20)),
    "unipc.wan_third": (UNIPC, WAN | dict(flow_shift=5.0, solver_order=3), dict(steps=9)),
    "unipc.wan_bh1": (UNIPC, WAN | TO_LOWEST | dict(flow_shift=8.0, solver_type="bh1"), dict(steps=4)),
    "unipc.wan_terminal": (UNIPC, WAN | dict(flow_shift=2.0, shift_terminal=0.1), dict(steps=4)),
    "unipc.wan_custom": (UNIPC, WAN | dict(flow_shift=3.0), dict(sigmas=[0.9, 0.5, 0.2, 0.05])),
    "unipc.cosmos": (
        UNIPC,
        WAN | dict(use_karras_sigmas=True, sigma_max=200.0, sigma_min=0.01, flow_shift=4.0),
        dict(steps=6),
    ),
}


def main():
    generator = tiny.generator(20)
    tensors, cases = {}, {}
    for name, (cls, options, run) in CASES.items():
        scheduler = getattr(diffusers, cls)(**options)
        tensors |= tiny.prefixed(name, run_case(scheduler, run, generator))
        config = json.dumps({"_class_name": cls} | options)
        cases[name] = dict(config=config, saved=scheduler.to_json_string()) | run
    tiny.write(tiny.GOLDENS / "solvers.safetensors", tensors | draws(), cases)


def run_case(scheduler, run, generator):
    """The samples of one case, with the noise that the scheduler drew."""
    set_timesteps(scheduler, run)
    randn = lambda: torch.randn(SHAPE, generator=generator)
    drawn = []

    def stored_noise(*_args, **_kwargs):
        drawn.append(randn())
        return drawn[-1]

    for module in (
        scheduling_ddim,
        scheduling_ddpm,
        scheduling_dpmsolver_multistep,
        scheduling_flow_match_euler_discrete,
    ):
        module.randn_tensor = stored_noise
    sample = initial = randn()
    predictions, samples, noises = [], [], []
    extra = {"eta": run["eta"]} if "eta" in run else {}
    for timestep in scheduler.timesteps:
        drawn.clear()
        predictions.append(randn())
        sample = scheduler.step(predictions[-1], timestep, sample, **extra).prev_sample
        assert sample.isfinite().all()
        samples.append(sample)
        noises.append(drawn[0] if drawn else torch.zeros(SHAPE))
    arrays = dict(
        timesteps=scheduler.timesteps.float(),
        initial=initial,
        predictions=torch.stack(predictions),
        samples=torch.stack(samples),
    )
    if any(noise.any() for noise in noises):
        arrays["noises"] = torch.stack(noises)
    return arrays


def set_timesteps(scheduler, run):
    """As the pipelines do it: the length of the sequence decides how far sigmas are shifted."""
    extra = {}
    config = scheduler.config
    if config.get("use_dynamic_shifting"):
        slope = (config.max_shift - config.base_shift) / (config.max_image_seq_len - config.base_image_seq_len)
        extra["mu"] = run["sequence_length"] * slope + config.base_shift - slope * config.base_image_seq_len
    if "sigmas" in run:
        scheduler.set_timesteps(sigmas=np.array(run["sigmas"]), **extra)
    else:
        scheduler.set_timesteps(run["steps"], **extra)
    if hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(0)  # else it looks for its place, and fails on equal timesteps


def draws():
    """Our own noise: the keys, Philox 4x32-10 and Box-Muller, without looking at the Rust."""
    low, large = dict(seed=7, stream="initial-noise", step=0), dict(seed=2**64 - 3, stream="é", step=2**33 + 5)
    return {
        "draw.normal": normals(**low, sample=3, count=11),
        "draw.no_sample": normals(**low, sample=None, count=5),
        "draw.large": normals(**large, sample=2**34 + 1, count=6),
        "draw.uniform": uniforms(**low, sample=3, count=9),
    }


MASK64 = 2**64 - 1


def absorb(key, word):
    z = ((key + 0x9E3779B97F4A7C15) & MASK64) ^ word
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def words(kind, seed, stream, step, sample, count):
    name = stream.encode()
    key = absorb(absorb(0, seed), len(name))
    for start in range(0, len(name), 8):
        key = absorb(key, int.from_bytes(name[start : start + 8], "little"))
    for word in (kind, step >> 32, 0 if sample is None else (sample >> 32) + 1):
        key = absorb(key, word)
    for block in range(count // 4 + 1):
        counter = [block, 0, step % 2**32, (sample or 0) % 2**32]
        yield from philox(counter, [key % 2**32, key >> 32])


def philox(counter, key):
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0],
            second % 2**32,
            (first >> 32) ^ counter[3] ^ key[1],
            first % 2**32,
        ]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter


def normals(count, **key):
    stream = [(word + 0.5) / 2**32 for word in words(2, count=count, **key)]
    values = []
    for radius, angle in zip(stream[::2], stream[1::2]):
        length = math.sqrt(-2 * math.log(radius))
        values += [length * math.cos(math.tau * angle), length * math.sin(math.tau * angle)]
    return torch.tensor(values[:count])


def uniforms(count, **key):
    return torch.tensor([(word >> 8) / 2**24 for word in words(1, count=count, **key)][:count])


if __name__ == "__main__":
    main()
