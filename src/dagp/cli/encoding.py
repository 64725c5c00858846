"""Looks at the bytes of a text file once: its encoding, and whether every row is one line."""

import codecs
from typing import BinaryIO, NamedTuple

import numpy as np

from dagp.cli.app import InputError

_BLOCK = 1 << 20
_BLANK = (b"\n\n", b"\n\r", b"\r\r")
"""Ends of lines with nothing between them; CR LF is one end."""
_ENDS = b"\r\n"


class TextBytes(NamedTuple):
    """What the bytes of a text file show."""

    encoding: str
    notes: list[str]
    one_row_per_line: bool
    """Whether no line is blank and no quoted cell contains a line break; False if not examined."""


def survey_bytes(name: str, file: BinaryIO) -> TextBytes:
    """UTF-16 by its byte order mark, UTF-8 if the whole file decodes, Latin-1 otherwise."""
    decoder, lines, is_utf8 = codecs.getincrementaldecoder("utf-8")(), _Lines(), True
    file.seek(0)
    block = file.read(_BLOCK)
    if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        _check_utf16(name, file)
        return TextBytes("utf-16", [], False)
    lines.add(block.removeprefix(codecs.BOM_UTF8))
    while block:
        _check_text(name, block)
        is_utf8 = is_utf8 and _decodes(decoder, block)
        block = file.read(_BLOCK)
        lines.add(block)
    if is_utf8 and _decodes(decoder, b"", final=True):
        return TextBytes("utf-8-sig", [], lines.one_row_each())
    return TextBytes(
        "latin-1", [f"{name} is not UTF-8; it is read as Latin-1."], lines.one_row_each()
    )


def _check_utf16(name: str, file: BinaryIO) -> None:
    """Raise InputError for a file of UTF-16 that is cut short or damaged."""
    decoder = codecs.getincrementaldecoder("utf-16")()
    file.seek(0)
    whole = True
    while whole and (block := file.read(_BLOCK)):
        whole = _decodes(decoder, block)
    if not (whole and _decodes(decoder, b"", final=True)):
        raise InputError(f"{name} is UTF-16 that is cut short or damaged; export it again.")


def _decodes(decoder: codecs.IncrementalDecoder, block: bytes, final: bool = False) -> bool:
    try:
        decoder.decode(block, final)
    except UnicodeDecodeError:
        return False
    return True


def _check_text(name: str, block: bytes) -> None:
    """Raise InputError for bytes that cannot be text."""
    if block.startswith(b"PK\x03\x04"):
        hint = "it looks like a spreadsheet or a zip archive; export it as CSV"
    elif block.startswith(b"\x1f\x8b"):
        hint = "it is compressed; unpack it first"
    elif b"\0" in block:
        hint = "it holds binary data"
    else:
        return
    raise InputError(f"{name} is not a text file: {hint}.")


class _Lines:
    """Looks for blank lines, other than at the end, and for line breaks in quotes."""

    def __init__(self) -> None:
        self._last, self._quoted = b"\n", False
        self._blank_so_far = self._irregular = False

    def add(self, block: bytes) -> None:
        """The next bytes of the file."""
        if self._irregular or not block:
            return
        self._irregular = self._blank(self._last + block) or self._break_in_quotes(block)
        self._last = block[-1:]

    def one_row_each(self) -> bool:
        """Whether every line was one row; an open quote at the end belongs to none."""
        return not (self._irregular or self._quoted)

    def _blank(self, data: bytes) -> bool:
        """Whether a blank line comes before a line with content."""
        content = data.rstrip(_ENDS)
        if content.lstrip(_ENDS) and self._blank_so_far:
            return True
        self._blank_so_far |= any(pair in data[len(content) :] for pair in _BLANK)
        return any(pair in content for pair in _BLANK)

    def _break_in_quotes(self, block: bytes) -> bool:
        if not self._quoted and b'"' not in block:
            return False
        data = np.frombuffer(block, np.uint8)
        # Sums of bytes wrap around at 256, which keeps them odd or even.
        inside = (np.cumsum(data == ord('"'), dtype=np.uint8) + self._quoted) % 2 == 1
        self._quoted = bool(inside[-1])
        return bool(np.any(inside & ((data == ord("\n")) | (data == ord("\r")))))
