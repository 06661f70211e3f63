"""Puts a case into words: several voices, lengths by setting, varied by a seed.

Nothing is stated here that the facts, ideas and lines of the case do not hold.
"""

from services.data.annotate.voice.style import VOICES, Length, Voice
from services.data.annotate.voice.writer import write

__all__ = ["VOICES", "Length", "Voice", "write"]
