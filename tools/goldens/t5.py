"""T5 encoders -> goldens/t5.safetensors (v1.1), t5_relu.safetensors (the first T5), umt5.safetensors.

The sequence of the former is longer than the largest relative distance, so that both halves of the position
buckets saturate; the batch holds captions of length 1, of some length and of the maximum.
"""

import tiny
import torch
from transformers import T5Config, T5EncoderModel, UMT5Config, UMT5EncoderModel

from pixart_folder import randomise_t5

LENGTH = 150
LENGTHS = [1, 67, LENGTH]


def write_relu():
    """The first T5: a plain feed-forward half; with buckets and an epsilon that are not usual."""
    config = T5Config(
        vocab_size=31,
        d_model=10,
        d_kv=3,
        d_ff=13,
        num_layers=2,
        num_heads=2,
        feed_forward_proj="relu",
        relative_attention_num_buckets=10,
        relative_attention_max_distance=17,
        layer_norm_epsilon=1e-3,
    )
    model = randomise_t5(T5EncoderModel(config), 3100).eval()
    ids = torch.randint(3, config.vocab_size, (2, 40), generator=tiny.generator(3101))
    mask = torch.tensor([[int(i < length) for i in range(40)] for length in [33, 40]])
    with torch.no_grad():
        output = model(input_ids=ids, attention_mask=mask).last_hidden_state
    weights = {n: p for n, p in model.state_dict().items() if n != "encoder.embed_tokens.weight"}
    tensors = {
        **tiny.prefixed("weights", weights),
        "inputs.input_ids": ids,
        "inputs.attention_mask": mask,
        "output": output,
    }
    tiny.write(tiny.GOLDENS / "t5_relu.safetensors", tensors, tiny.plain_config(model))


def write_umt5():
    """UMT5 as Wan has it: position biases of their own in each of three blocks, long enough to saturate."""
    config = UMT5Config(vocab_size=43, d_model=14, d_kv=5, d_ff=19, num_layers=3, num_heads=3)
    model = randomise_t5(UMT5EncoderModel(config), 3200).eval()
    length, lengths = 141, [9, 141]
    ids = torch.randint(3, config.vocab_size, (2, length), generator=tiny.generator(3201))
    mask = torch.tensor([[int(i < kept) for i in range(length)] for kept in lengths])
    for row, kept in enumerate(lengths):
        ids[row, kept - 1] = 1
        ids[row, kept:] = 0
    with torch.no_grad():
        output = model(input_ids=ids, attention_mask=mask).last_hidden_state
    weights = {n: p for n, p in model.state_dict().items() if n != "encoder.embed_tokens.weight"}
    tensors = {
        **tiny.prefixed("weights", weights),
        "inputs.input_ids": ids,
        "inputs.attention_mask": mask,
        "output": output,
    }
    tiny.write(tiny.GOLDENS / "umt5.safetensors", tensors, tiny.plain_config(model))


def main():
    """Write weights, inputs and outputs."""
    write_relu()
    write_umt5()
    config = T5Config(
        vocab_size=61,
        d_model=12,
        d_kv=5,
        d_ff=17,
        num_layers=2,
        num_heads=3,
        feed_forward_proj="gated-gelu",
    )
    model = randomise_t5(T5EncoderModel(config), 3000).eval()
    ids = torch.randint(3, config.vocab_size, (3, LENGTH), generator=tiny.generator(3001))
    mask = torch.tensor([[int(i < length) for i in range(LENGTH)] for length in LENGTHS])
    for row, length in enumerate(LENGTHS):
        # A caption ends with the end token 1; the rest is padding 0.
        ids[row, length - 1] = 1
        ids[row, length:] = 0
    with torch.no_grad():
        output = model(input_ids=ids, attention_mask=mask)
        unmasked = model(input_ids=ids[1:2, : LENGTHS[1]])
        states = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
    kept = output.last_hidden_state[1:2, : LENGTHS[1]]
    off = (kept - unmasked.last_hidden_state).abs().max().item()
    print(f"t5: masked padding changes a caption by {off:.1e}")
    weights = {n: p for n, p in model.state_dict().items() if n != "encoder.embed_tokens.weight"}
    tensors = {
        **tiny.prefixed("weights", weights),
        "inputs.input_ids": ids,
        "inputs.attention_mask": mask,
        "block.0.output": states[1],
        "output": output.last_hidden_state,
    }
    tiny.write(tiny.GOLDENS / "t5.safetensors", tensors, tiny.plain_config(model))


if __name__ == "__main__":
    main()
