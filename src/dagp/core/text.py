"""Words of users and of their files in messages: on one line, printable, and not too long."""

import reprlib
from typing import Any

LONGEST = 200
"""Characters of a word; of a whole message ten times as many."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = 60
_SHORT.maxother = LONGEST
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = _SHORT.maxarray = 8


def quoted(value: Any) -> str:
    """A value as Python writes it, its middle left out if it is long.

    >>> quoted("two\\nlines"), quoted(0.5), len(quoted("1" * 100_000)) <= 60
    ("'two\\\\nlines'", '0.5', True)
    """
    try:
        text = _SHORT.repr(value)
    except ValueError:
        # Python does not write numbers of more than some thousands of digits.
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else "a value"
    return " ".join(text.split()) if "\n" in text else text


def shown(word: Any, most: int = LONGEST) -> str:
    """Text without quotes: what a terminal acts on becomes a question mark.

    >>> shown("two\\nlines"), shown("a" * 300, most=5)
    ('two?lines', 'aaaa…')
    """
    try:
        text = str(word)
    except ValueError:
        text = quoted(word)
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def is_unicode(word: Any) -> bool:
    """Whether a name can be written to a file or a screen: text with half a character cannot.

    >>> is_unicode("naïve"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        str(word).encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(message: str) -> str:
    """A whole message: the last defence against what is quoted in it.

    >>> one_line("on two\\nlines"), len(one_line("a" * 1000 + " is the reason."))
    ('on two lines', 215)
    """
    return shown(" ".join(shown(word) for word in message.split()), 10 * LONGEST)
