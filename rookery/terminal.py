"""The console of all commands: text of others cannot steer the terminal that it is printed to."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from rookery.masking import printable


class SafeConsole(Console):
    """A console that escapes the control characters of what it prints, but not those of styles and bars.

    Characters that the terminal's encoding lacks become question marks.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of `renderable`, with their text escaped."""
        for segment in super().render(renderable, options):
            if not segment.control:
                text = printable(segment.text).encode(self.encoding, "replace").decode(self.encoding)
                segment = Segment(text, segment.style)
            yield segment
