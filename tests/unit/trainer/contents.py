"""What the files of a commit hold, without writing them."""

from collections.abc import Mapping

from services.trainer.versions.files import Content, pieces


def content(file: Content) -> bytes:
    return b"".join(pieces(file))


def contents(files: Mapping[str, Content]) -> dict[str, bytes]:
    return {name: content(file) for name, file in files.items()}
