"""GPT-2's tokenizer of a model directory, without transformers."""

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.implementations import ByteLevelBPETokenizer

from rookery.errors import InvalidInput
from rookery.rookworld import END_OF_TEXT


def load_tokenizer(folder: Path) -> Tokenizer:
    """From `tokenizer.json`, or from the older `vocab.json` and `merges.txt`.

    Raises:
        InvalidInput: neither is there.
    """
    whole, vocabulary, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if whole.is_file():
        tokenizer: Tokenizer = Tokenizer.from_file(str(whole))
        return tokenizer
    if vocabulary.is_file() and merges.is_file():
        older: Tokenizer = ByteLevelBPETokenizer(str(vocabulary), str(merges))
        older.add_special_tokens([END_OF_TEXT])
        return older
    raise InvalidInput(f"{folder} has neither {whole.name} nor {vocabulary.name} and {merges.name}")
