"""From a study to a text: what is worth saying, in which order, in which words."""
