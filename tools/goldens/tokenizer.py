"""Two tiny T5 tokenizers: one as tokenizer.json, one as the spiece.model that hub folders ship.

Both hold the pieces of one sentencepiece training run (the trainer of the tokenizers library gives
other pieces at every run). Run alone this makes `goldens/tokenizer-spiece/`: the sentencepiece
model, a tokenizer_config.json as the PixArt hub folder has it, and `ids.json`, what transformers'
T5Tokenizer makes of each caption.
"""

import json
import shutil
import tempfile
from pathlib import Path

import tiny  # first: it sets the thread counts before the tokenizers start
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast, T5Tokenizer

from words import CAPTIONS, sentences

VOCABULARY = 250
HUB_MAX_LENGTH = 120


def train():
    """Train a sentencepiece Unigram model with T5's special ids and normaliser."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "captions.txt"
        corpus.write_text("\n".join(sentences()))
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus),
            model_prefix=str(Path(folder) / "spiece"),
            vocab_size=VOCABULARY,
            model_type="unigram",
            normalization_rule_name="nmt_nfkc",
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            num_threads=1,
            minloglevel=2,
        )
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString((Path(folder) / "spiece.model").read_bytes())
    # The trainer's paths are no part of the tokenizer.
    del proto.trainer_spec.input[:]
    proto.trainer_spec.model_prefix = "spiece"
    return proto


def json_tokenizer(extra_ids=4):
    """A T5Tokenizer without a normaliser, which transformers saves as a small tokenizer.json."""
    pieces = [(piece.piece, piece.score) for piece in train().pieces]
    pieces += [(f"<extra_id_{i}>", 0.0) for i in reversed(range(extra_ids))]
    return T5Tokenizer(vocab=pieces, extra_ids=extra_ids, model_max_length=HUB_MAX_LENGTH)


def hub_config():
    """tokenizer_config.json in the form that the PixArt-alpha hub folder has."""
    return {
        "additional_special_tokens": [f"<extra_id_{i}>" for i in range(100)],
        "clean_up_tokenization_spaces": True,
        "eos_token": "</s>",
        "extra_ids": 100,
        "legacy": True,
        "model_max_length": HUB_MAX_LENGTH,
        "pad_token": "<pad>",
        "sp_model_kwargs": {},
        "tokenizer_class": "T5Tokenizer",
        "unk_token": "<unk>",
    }


def captions_and_ids(folder):
    """For each caption: transformers' ids, and sentencepiece's own ids (end token added)."""
    tokenizer = T5Tokenizer.from_pretrained(folder)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    rows = []
    for caption in CAPTIONS:
        batch = tokenizer([caption], padding="max_length", max_length=HUB_MAX_LENGTH, truncation=True)
        length = sum(batch.attention_mask[0])
        assert batch.input_ids[0][length:] == [0] * (HUB_MAX_LENGTH - length)
        rows.append({
            "caption": caption,
            "ids": batch.input_ids[0][:length],
            "ids_whole": tokenizer([caption]).input_ids[0],
            "sentencepiece_ids": pieces.encode(caption) + [1],
        })
    return rows


def umt5_tokenizer(extra_ids=5):
    """A tokenizer as Wan's folders have it: bytes for what no piece covers, normaliser, extra ids at the end."""
    pieces = [(piece.piece, piece.score) for piece in train().pieces]
    pieces = pieces[:3] + [(f"<0x{byte:02X}>", 0.0) for byte in range(256)] + pieces[3:]
    extra = [f"<extra_id_{i}>" for i in reversed(range(extra_ids))]
    backend = Tokenizer(models.Unigram(pieces + [(name, 0.0) for name in extra], unk_id=2, byte_fallback=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    backend.post_processor = processors.TemplateProcessing(single=["$A", "</s>"], special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512,
        additional_special_tokens=extra,
    )


def write_umt5():
    """Write goldens/tokenizer-umt5: the folder as transformers saves it, and ids padded to 512 by Wan's call."""
    folder = tiny.GOLDENS / "tokenizer-umt5"
    shutil.rmtree(folder, ignore_errors=True)
    umt5_tokenizer().save_pretrained(folder)
    # The layout of the file is of no interest.
    whole = folder / "tokenizer.json"
    whole.write_text(json.dumps(json.loads(whole.read_text()), ensure_ascii=False, separators=(",", ":")) + "\n")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = []
    for caption in CAPTIONS:
        batch = tokenizer(
            [caption], padding="max_length", max_length=512, truncation=True, add_special_tokens=True,
            return_attention_mask=True,
        )
        length = sum(batch.attention_mask[0])
        assert batch.input_ids[0][length:] == [0] * (512 - length)
        rows.append(json.dumps({"caption": caption, "ids": batch.input_ids[0][:length]}))
    (folder / "ids.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")
    print(f"tokenizer-umt5: {len(rows)} captions")


def main():
    """Write goldens/tokenizer-spiece and goldens/tokenizer-umt5."""
    write_umt5()
    folder = tiny.GOLDENS / "tokenizer-spiece"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "spiece.model").write_bytes(train().SerializeToString(deterministic=True))
    config = json.dumps(hub_config(), indent=2, sort_keys=True)
    (folder / "tokenizer_config.json").write_text(config + "\n")
    rows = captions_and_ids(folder)
    text = json.dumps({"max_length": HUB_MAX_LENGTH, "captions": rows}, ensure_ascii=True)
    # One caption per line, so that a change can be read in a diff.
    (folder / "ids.json").write_text(text.replace('}, {"caption"', '},\n{"caption"') + "\n")
    unequal = [row["caption"] for row in rows if row["ids_whole"] != row["sentencepiece_ids"]]
    print(f"tokenizer-spiece: {len(rows)} captions, sentencepiece itself differs on {unequal}")


if __name__ == "__main__":
    main()
