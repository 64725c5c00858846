"""Files of compiled programs: whole or absent, checked before they are read, bounded in size.

A compiled program is machine code: write access to such a file is the right to run code as its
reader. Files are therefore trusted by where they lie, in a folder that only the current user can
write to, and not by what they hold; the checksum detects damage. No failure here is an error for
the user: a program that cannot be read is compiled, and one that cannot be written is not kept.
"""

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path

LIMIT = 512 * 2**20
"""Bytes of all files together; above, those that have not been read for longest are removed."""
_HEADER = b"dagp program 1\n"
_DIGEST = 32
_FAILURES = (OSError, RuntimeError)
"""RuntimeError: there is no home folder."""


def cache_folder() -> Path | None:
    """Folder of the compiled programs; None if none are kept."""
    off = os.environ.get("DAGP_CACHE", "").lower() in ("off", "0", "no", "false")
    # On other systems than Linux, reading back large programs has crashed.
    if off or sys.platform != "linux":
        return None
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    with contextlib.suppress(*_FAILURES):
        return (root if root.is_absolute() else Path.home() / ".cache") / "dagp" / "programs"
    return None


def _is_private(status: os.stat_result) -> bool:
    """Whether a file or folder belongs to the current user, who alone can write to it."""
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _private_folder() -> Path | None:
    folder = cache_folder()
    with contextlib.suppress(*_FAILURES):
        if folder is not None:
            status = folder.lstat()
            return folder if stat.S_ISDIR(status.st_mode) and _is_private(status) else None
    return None


def read(name: str) -> bytes | None:
    """Content of a file; None if there is none that can be trusted. A damaged file is removed."""
    folder = _private_folder()
    if folder is None:
        return None
    with contextlib.suppress(*_FAILURES):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(folder / name, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not (stat.S_ISREG(status.st_mode) and _is_private(status)):
                return None
            whole = file.read(LIMIT)
        start = len(_HEADER) + _DIGEST
        digest, content = whole[len(_HEADER) : start], whole[start:]
        if whole.startswith(_HEADER) and digest == _digest(content):
            os.utime(folder / name)
            return content
        remove(name)
    return None


def write(name: str, content: bytes) -> None:
    """Write a file under a temporary name, rename it, and remove the oldest files if need be."""
    with contextlib.suppress(*_FAILURES):
        folder = cache_folder()
        if folder is None or len(content) > LIMIT // 4:
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _private_folder() is None:
            return
        # Readable by its owner alone.
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix="writing-")
        try:
            with open(descriptor, "wb") as file:
                file.write(_HEADER + _digest(content) + content)
            os.replace(temporary, folder / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _shrink(folder)


def remove(name: str) -> None:
    """Remove a file if it is there."""
    folder = _private_folder()
    with contextlib.suppress(*_FAILURES):
        if folder is not None:
            (folder / name).unlink(missing_ok=True)


def clear_cache() -> int:
    """Remove the compiled programs that are kept on disk.

    They are kept in ``$XDG_CACHE_HOME/dagp/programs``, or ``~/.cache/dagp/programs``, at most 512
    MiB of them, and a later process that needs one reads it instead of compiling it. With
    ``DAGP_CACHE=off`` in the environment nothing is kept, read or removed. Results do not depend
    on what is kept.

    Returns
    -------
    freed : int
        Size of the removed files in bytes.

    Examples
    --------
    >>> import dagp
    >>> dagp.clear_cache() >= 0
    True
    """
    folder = _private_folder()
    return 0 if folder is None else _shrink(folder, 0)


def _shrink(folder: Path, limit: int | None = None) -> int:
    """Remove the files read longest ago until the others fit into the limit; bytes removed."""
    found, freed = [], 0
    with contextlib.suppress(*_FAILURES), os.scandir(folder) as entries:
        for entry in entries:
            # Another process may remove files at the same time.
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found.append((status.st_mtime_ns, status.st_size, entry.path))
    excess = sum(size for _, size, _ in found) - (LIMIT if limit is None else limit)
    for _, size, path in sorted(found):
        if freed >= excess:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            freed += size
    return freed


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()
