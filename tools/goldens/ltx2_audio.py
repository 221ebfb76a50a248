"""The sound of LTX-2 -> goldens/ltx2_audio.safetensors: audio VAE, mel spectrogram, vocoders, latent upsampler.

`vae` is a tiny AutoencoderKLLTX2Audio both ways. `mel` is the spectrogram that LTX-2's own code computes with
torchaudio, written out here with torch alone: a centred Hann STFT of 1024 with a hop of 160, magnitudes, 64 Slaney
mel bands. `vocoder` is LTX-2's, `bwe` LTX-2.3's with bandwidth extension. `upsampler` doubles latents, `rational`
makes them one and a half times as large.
"""

import math

import tiny
import torch
from diffusers import AutoencoderKLLTX2Audio
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder, LTX2VocoderWithBWE

VAE = dict(
    base_channels=8, output_channels=2, ch_mult=(1, 2, 1), num_res_blocks=1, in_channels=2, latent_channels=2,
    norm_type="pixel", causality_axis="height", mel_bins=16, resolution=16,
)
VOCODER = dict(
    in_channels=8, hidden_channels=16, out_channels=2, upsample_kernel_sizes=[7, 4], upsample_factors=[3, 2],
    resnet_kernel_sizes=[3, 5], resnet_dilations=[[1, 3], [1, 2]], output_sampling_rate=9600,
)
BWE = dict(
    in_channels=8, hidden_channels=12, out_channels=2, upsample_kernel_sizes=[6, 4], upsample_factors=[4, 2],
    resnet_kernel_sizes=[3], resnet_dilations=[[1, 3]], antialias_kernel_size=12,
    bwe_in_channels=8, bwe_hidden_channels=8, bwe_out_channels=2, bwe_upsample_kernel_sizes=[12, 4],
    bwe_upsample_factors=[6, 2], bwe_resnet_kernel_sizes=[3], bwe_resnet_dilations=[[1, 3]],
    filter_length=16, hop_length=4, window_length=16, num_mel_channels=4,
    input_sampling_rate=1600, output_sampling_rate=4800,
)
UPSAMPLER = dict(in_channels=4, mid_channels=32, num_blocks_per_stage=1)


def vae():
    """Encode a spectrogram and decode latents."""
    model = tiny.randomise(AutoencoderKLLTX2Audio(**VAE), 81)
    with torch.no_grad():
        model.latents_mean.copy_(tiny.normal((8,), 82, 0.3))
        model.latents_std.copy_(1 + tiny.normal((8,), 83, 0.3).abs())
    mel, latent = tiny.normal((2, 2, 13, 16), 84), tiny.normal((2, 2, 3, 4), 85)
    packed = latent.permute(0, 2, 1, 3).reshape(2, 3, 8)
    restored = (packed * model.latents_std + model.latents_mean).reshape(2, 3, 2, 4).permute(0, 2, 1, 3)
    tensors = {
        **tiny.prefixed("weights", model.state_dict()),
        "mel": mel, "moments": model.encode(mel).latent_dist.parameters,
        "latent": latent, "decoded": model.decode(restored).sample,
    }
    return tiny.prefixed("vae", tensors), tiny.plain_config(model)


def slaney(frequency):
    """Mels of a frequency in Hz after Slaney."""
    return frequency / (200 / 3) if frequency < 1000 else 15 + math.log(frequency / 1000) / (math.log(6.4) / 27)


def hertz(mel):
    """The frequency of mels after Slaney."""
    return mel * 200 / 3 if mel < 15 else 1000 * math.exp((mel - 15) * math.log(6.4) / 27)


def mel_bands(rate=16000, bins=513, bands=64, top=8000.0):
    """Triangles of unit area [bands, bins]."""
    places = [hertz(slaney(top) * i / (bands + 1)) for i in range(bands + 2)]
    table = torch.zeros(bands, bins, dtype=torch.float64)
    for band in range(bands):
        low, middle, high = places[band : band + 3]
        for bin in range(bins):
            f = rate / 2 * bin / (bins - 1)
            table[band, bin] = max(0, min((f - low) / (middle - low), (high - f) / (high - middle))) * 2 / (high - low)
    return table


def mel():
    """The log-mel spectrogram of a tone and of noise, a fifth of a second each."""
    time = torch.arange(3200) / 16000
    wave = torch.stack([torch.sin(2 * math.pi * 440 * time) * 0.5, tiny.normal((3200,), 86, 0.1)])
    # In double precision: the logarithm magnifies what is lost in bands that are nearly empty.
    spectrum = torch.stft(
        wave.double(), 1024, 160, 1024, torch.hann_window(1024, dtype=torch.float64), center=True,
        pad_mode="reflect", return_complex=True,
    )
    bands = mel_bands() @ spectrum.abs()
    return {"mel.wave": wave, "mel.log": torch.log(bands.clamp(min=1e-5)).transpose(1, 2)[None].float()}


def vocoder():
    """Spectrograms to waves."""
    model = tiny.randomise(LTX2Vocoder(**VOCODER), 87)
    spectrogram = tiny.normal((2, 2, 9, 4), 88)
    tensors = {**tiny.prefixed("weights", model.state_dict()), "mel": spectrogram, "wave": model(spectrogram)}
    return tiny.prefixed("vocoder", tensors), tiny.plain_config(model)


def bwe():
    """Spectrograms to waves of three times the rate."""
    model = tiny.randomise(LTX2VocoderWithBWE(**BWE), 89)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("_basis"):
                values = tiny.normal(buffer.shape, 90 + len(name), 0.4)
                buffer.copy_(values.abs() if "mel_basis" in name else values)
        for part in (model.vocoder, model.bwe_generator):
            part.conv_out.weight *= 0.3
    spectrogram = tiny.normal((2, 2, 9, 4), 91)
    tensors = {**tiny.prefixed("weights", model.state_dict()), "mel": spectrogram, "wave": model(spectrogram)}
    return tiny.prefixed("bwe", tensors), tiny.plain_config(model)


def upsampler(name, changes):
    """Latents to larger latents, by weights that two bytes hold."""
    model = tiny.randomise(LTX2LatentUpsamplerModel(**UPSAMPLER | changes), 92)
    latent = tiny.normal((2, 4, 2, 3, 4), 93)
    weights = {name: weight.half() for name, weight in model.state_dict().items()}
    model.load_state_dict(weights)
    tensors = {**tiny.prefixed("weights", weights), "latent": latent, "larger": model(latent)}
    return tiny.prefixed(name, tensors), tiny.plain_config(model)


@torch.no_grad()
def main():
    """Write all into one file."""
    tensors, configs = mel(), {}
    for name, (made, config) in {
        "vae": vae(), "vocoder": vocoder(), "bwe": bwe(),
        "upsampler": upsampler("upsampler", dict(use_rational_resampler=False)),
        "rational": upsampler("rational", dict(rational_spatial_scale=1.5, dims=2, num_blocks_per_stage=0)),
    }.items():
        print(name, {key: tuple(it.shape) for key, it in made.items() if ".weights." not in key},
              sum(it.numel() for it in made.values()) * 4)
        tensors |= made
        configs[name] = config
    tiny.write(tiny.GOLDENS / "ltx2_audio.safetensors", tensors, configs)


if __name__ == "__main__":
    main()
