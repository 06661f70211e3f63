"""The training data of `sft`, `reward-model` and `dpo`: chats and pairs, from files and URLs."""
