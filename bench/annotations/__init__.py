"""False claims in first drafts of annotations, and falsehoods that are planted: how many are found."""
