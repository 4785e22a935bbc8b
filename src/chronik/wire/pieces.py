"""What an answer is made of: buffers, and slices of files that the kernel can send by itself."""

from collections.abc import Iterable

from chronik.wire.primitives import Buffer


class FileSlice:
    """Bytes of a file. The descriptor is good as long as the view, which has the same bytes."""

    __slots__ = ("descriptor", "position", "view")

    def __init__(self, view: memoryview, descriptor: int, position: int) -> None:
        self.view = view
        self.descriptor = descriptor
        self.position = position

    def __len__(self) -> int:
        return len(self.view)


Piece = Buffer | FileSlice


def buffers_of(pieces: Iterable[Piece]) -> list[Buffer]:
    """The same bytes for who cannot send files."""
    return [piece.view if isinstance(piece, FileSlice) else piece for piece in pieces]
