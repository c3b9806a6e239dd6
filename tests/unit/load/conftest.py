import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer with a start token, as Llama's has."""
    letters = np.random.default_rng(0).choice(list("abcdefgh"), (400, 4))
    words = ["".join(word) for word in letters]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=["<s>"], show_progress=False)
    trained.train_from_iterator([" ".join(words)] * 3, trainer)
    trained.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", trained.token_to_id("<s>"))]
    )
    return trained
