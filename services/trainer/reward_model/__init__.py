"""The reward model, which gives an answer a number: trained on preference pairs, measured, and served."""
