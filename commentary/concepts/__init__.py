"""Every concept, subject by subject. Importing this package fills `commentary.concept.CONCEPTS`."""

from commentary.concepts import defence, files, kings, material, mates, moves, pawns, pieces, tactics

__all__ = ["defence", "files", "kings", "material", "mates", "moves", "pawns", "pieces", "tactics"]
