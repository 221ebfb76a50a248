"""Whole tiny LTX-2 pipeline folders, as diffusers saves them.

`goldens/ltx2-tiny` is of LTX-2.0's kind: the transformer projects captions, heads turn by split halves, one
generator makes the wave. `goldens/ltx23-tiny` is of LTX-2.3's: gated attention, modulated prompts, captions in the
widths of the streams, and here pairs that lie beside each other; its vocoder extends the band.
"""

import shutil
from dataclasses import dataclass, field

import tiny
import torch
from diffusers import (
    AutoencoderKLLTX2Audio,
    AutoencoderKLLTX2Video,
    FlowMatchEulerDiscreteScheduler,
    LTX2Pipeline,
    LTX2VideoTransformer3DModel,
)
from diffusers.pipelines.ltx2 import LTX2TextConnectors
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder, LTX2VocoderWithBWE
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import Gemma3ForConditionalGeneration, Gemma3TextConfig, PreTrainedTokenizerFast

from ltx2_text import gemma_config, randomise_gemma
from tokenizer import train

LATENT, TEXT, STATES = 4, 12, 3
AUDIO_LATENT, AUDIO_BINS = 2, 4


@dataclass
class Sizes:
    """What differs between folders."""

    seed: int
    heads: int
    head_width: int
    audio_head_width: int
    factors: tuple
    is_later: bool
    transformer: dict = field(default_factory=dict)

    @property
    def widths(self):
        """Of the video's stream and of the sound's."""
        return self.heads * self.head_width, self.heads * self.audio_head_width


FOLDERS = {
    "ltx2-tiny": Sizes(
        seed=400, heads=2, head_width=8, audio_head_width=6, factors=(4, 16, 16), is_later=False,
        transformer=dict(rope_type="split", caption_channels=TEXT),
    ),
    "ltx23-tiny": Sizes(
        seed=450, heads=6, head_width=4, audio_head_width=2, factors=(2, 8, 8), is_later=True,
        transformer=dict(
            rope_type="interleaved", use_prompt_embeddings=False, gated_attn=True, audio_gated_attn=True,
            cross_attn_mod=True, audio_cross_attn_mod=True,
        ),
    ),
}


def transformer(sizes):
    """Both streams, two blocks of the first kind and one of the later."""
    video, audio = sizes.widths
    channels = AUDIO_LATENT * AUDIO_BINS
    model = LTX2VideoTransformer3DModel(
        in_channels=LATENT, out_channels=LATENT, num_attention_heads=sizes.heads,
        attention_head_dim=sizes.head_width, cross_attention_dim=video, audio_in_channels=channels,
        audio_out_channels=channels, audio_num_attention_heads=sizes.heads,
        audio_attention_head_dim=sizes.audio_head_width, audio_cross_attention_dim=audio, num_layers=1 if sizes.is_later else 2,
        vae_scale_factors=sizes.factors, perturbed_attn=True, **sizes.transformer,
    )
    return tiny.randomise(model, sizes.seed + 1)


def connectors(sizes):
    """From hidden states to what each stream reads."""
    video, audio = sizes.widths if sizes.is_later else (TEXT, TEXT)
    heads = sizes.heads if sizes.is_later else 2
    config = dict(
        caption_channels=TEXT, text_proj_in_factor=STATES, video_connector_num_attention_heads=heads,
        video_connector_attention_head_dim=video // heads, video_connector_num_layers=1,
        video_connector_num_learnable_registers=4, audio_connector_num_attention_heads=heads,
        audio_connector_attention_head_dim=audio // heads, audio_connector_num_layers=1,
        audio_connector_num_learnable_registers=8, connector_rope_base_seq_len=16,
        rope_type=sizes.transformer["rope_type"],
    )
    if sizes.is_later:
        config |= dict(
            per_modality_projections=True, video_hidden_dim=video, audio_hidden_dim=audio, proj_bias=True,
            video_gated_attn=True, audio_gated_attn=True,
        )
    return tiny.randomise(LTX2TextConnectors(**config), sizes.seed + 2)


def text_encoder(sizes, vocabulary):
    """Gemma 3: a layer that sees a window, and one that sees everything before it."""
    text = Gemma3TextConfig(
        vocab_size=vocabulary, hidden_size=TEXT, intermediate_size=16, num_hidden_layers=STATES - 1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=6, query_pre_attn_scalar=6, sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
    )
    return randomise_gemma(Gemma3ForConditionalGeneration(gemma_config(text)), sizes.seed + 3)


def words():
    """A tokenizer whose captions begin with a token of their own and are padded on the left."""
    pieces = [(piece.piece, piece.score) for piece in train().pieces] + [("<bos>", 0.0)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=2))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never")
    backend.post_processor = processors.TemplateProcessing(
        single=["<bos>", "$A"], special_tokens=[("<bos>", len(pieces) - 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", bos_token="<bos>",
        model_max_length=1024, padding_side="left",
    )


def vae(sizes):
    """LTX-2.0's kind mirrors at the border and adds what it steps over, LTX-2.3's does neither."""
    widths = (4, 4) if sizes.is_later else (4, 8, 8)
    levels = len(widths)
    config = dict(
        latent_channels=LATENT, block_out_channels=widths,
        down_block_types=("LTX2VideoDownBlock3D",) * levels, layers_per_block=(1,) * (levels + 1),
        spatio_temporal_scaling=(True,) * levels, decoder_block_out_channels=widths,
        decoder_layers_per_block=(1,) * (levels + 1), decoder_spatio_temporal_scaling=(True,) * levels,
        decoder_inject_noise=(False,) * (levels + 1), patch_size=4 if sizes.is_later else 2, decoder_causal=False,
        spatial_compression_ratio=sizes.factors[1], temporal_compression_ratio=sizes.factors[0],
    )
    config |= dict(
        downsample_type=("spatial", "temporal"), upsample_type=("temporal", "spatial"),
        upsample_residual=(False, False), upsample_factor=(1, 1), decoder_spatial_padding_mode="zeros",
    ) if sizes.is_later else dict(
        downsample_type=("spatial", "spatiotemporal", "spatiotemporal"),
        upsample_type=("spatiotemporal", "spatiotemporal", "spatial"), upsample_factor=(1, 1, 2),
    )
    model = tiny.randomise(AutoencoderKLLTX2Video(**config), sizes.seed + 4)
    with torch.no_grad():
        model.latents_mean.copy_(tiny.normal((LATENT,), sizes.seed + 5, 0.3))
        model.latents_std.copy_(1 + tiny.normal((LATENT,), sizes.seed + 6, 0.3).abs())
    return model


def audio_vae(sizes):
    """A spectrogram of 16 bands to latents of 4."""
    model = tiny.randomise(AutoencoderKLLTX2Audio(
        base_channels=AUDIO_LATENT * AUDIO_BINS, output_channels=2, ch_mult=(1, 1, 1), num_res_blocks=1, in_channels=2,
        latent_channels=AUDIO_LATENT, norm_type="pixel", causality_axis="height", mel_bins=16, resolution=16,
    ), sizes.seed + 7)
    values = AUDIO_LATENT * AUDIO_BINS
    with torch.no_grad():
        model.latents_mean.copy_(tiny.normal((values,), sizes.seed + 8, 0.3))
        model.latents_std.copy_(1 + tiny.normal((values,), sizes.seed + 9, 0.3).abs())
    return model


def vocoder(sizes):
    """A spectrogram to a wave; of the later kind, to one of three times the rate."""
    generator = dict(
        in_channels=32, hidden_channels=8, out_channels=2, upsample_kernel_sizes=[6, 4], upsample_factors=[4, 2],
        resnet_kernel_sizes=[3], resnet_dilations=[[1, 3]],
    )
    if not sizes.is_later:
        return tiny.randomise(LTX2Vocoder(**generator, output_sampling_rate=800), sizes.seed + 10)
    model = tiny.randomise(LTX2VocoderWithBWE(
        **generator, antialias_kernel_size=12, bwe_in_channels=8, bwe_hidden_channels=4, bwe_out_channels=2,
        bwe_upsample_kernel_sizes=[12, 4], bwe_upsample_factors=[6, 2], bwe_resnet_kernel_sizes=[3],
        bwe_resnet_dilations=[[1, 3]], filter_length=16, hop_length=4, window_length=16, num_mel_channels=4,
        input_sampling_rate=800, output_sampling_rate=2400,
    ), sizes.seed + 10)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("_basis"):
                values = tiny.normal(buffer.shape, sizes.seed + 11 + len(name), 0.4)
                buffer.copy_(values.abs() if "mel_basis" in name else values)
        for part in (model.vocoder, model.bwe_generator):
            part.conv_out.weight *= 0.3
    return model


def scheduler():
    """Shifted by the number of tokens and stretched to end at 0.1, as LTX-2's is."""
    return FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05, base_image_seq_len=1024,
        max_image_seq_len=4096, shift_terminal=0.1,
    )


def build(sizes):
    """A whole pipeline with seeded random weights in float32."""
    torch.manual_seed(sizes.seed)
    tokenizer = words()
    return LTX2Pipeline(
        scheduler=scheduler(), vae=vae(sizes), audio_vae=audio_vae(sizes),
        text_encoder=text_encoder(sizes, len(tokenizer)), tokenizer=tokenizer, connectors=connectors(sizes),
        transformer=transformer(sizes), vocoder=vocoder(sizes),
    )


def main():
    """Write the folders under goldens/."""
    for name, sizes in FOLDERS.items():
        folder = tiny.GOLDENS / name
        shutil.rmtree(folder, ignore_errors=True)
        build(sizes).save_pretrained(folder, safe_serialization=True)
        for file in folder.rglob("*.safetensors"):
            file.chmod(0o644)
        total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(f"{name}: {total} bytes")


if __name__ == "__main__":
    main()
