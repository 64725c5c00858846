"""Atomic file writes: a file is written completely or not at all."""

import contextlib
import glob
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from dagp.core.errors import StorageError
from dagp.core.text import quoted

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover  (Windows: temporary files of killed writers stay)
    fcntl = None

_DRAFT, _LOCK = ".draft", ".lock"
_LONGEST = 160
"""Bytes of a file name that names of temporary files repeat: most file systems allow 255."""


def replace(path: str | Path, fill: Callable[[BinaryIO], object]) -> Path:
    """Write a file atomically: the path always holds the old or the new one, complete.

    The new file has the permissions of the old one. A link is followed; pipes and devices, which
    cannot be replaced, are written to when all is there.
    """
    given, path = Path(path), _resolved(path)
    try:
        if path.exists() and not path.is_file():
            _pour(path, fill)
            return given
        with _draft(path) as (handle, draft):
            with os.fdopen(handle, "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(draft, _permissions(path))
            os.replace(draft, path)
    except OSError as error:
        raise StorageError(f"Cannot write {given}: {error.strerror or error}.") from error
    _sync_folder(path.parent)
    _tidy(path)
    return given


def _resolved(path: str | Path) -> Path:
    """The path with its links followed."""
    try:
        return Path(os.path.realpath(path))
    except ValueError as error:  # with a null character
        raise StorageError(f"{quoted(str(path))} cannot be a file name: {error}.") from error


def _beside(path: Path) -> str:
    """Beginning of the names of temporary files beside a file."""
    name = os.fsencode(path.name)
    if len(name) <= _LONGEST:
        return f".{path.name}"
    return f".{hashlib.blake2b(name, digest_size=16).hexdigest()}"


def _permissions(path: Path) -> int:
    """Those of the file, or of a new one."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _pour(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Write to a pipe or device, all at once."""
    with tempfile.TemporaryFile() as whole, path.open("wb") as file:
        fill(whole)
        whole.seek(0)
        shutil.copyfileobj(whole, file)


def discard(path: str | Path) -> None:
    """Remove a file, if it exists, and temporary files that killed writers left."""
    path = Path(path)
    path.unlink(missing_ok=True)
    _tidy(path)


class Hold:
    """A file that one fit at a time may write, in this process or another.

    A lock on a file beside it, which goes when the lock is released, or with the next holder where
    the process was killed.
    """

    def __init__(self, path: str | Path):
        self._handle: int | None = None
        whole = _resolved(path)
        self._name = whole.with_name(f"{_beside(whole)}{_LOCK}")
        while fcntl is not None and self._handle is None:
            self._handle = self._taken(path)

    def _taken(self, path: str | Path) -> int | None:
        assert fcntl is not None
        try:
            handle = os.open(self._name, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StorageError(f"Cannot write {path}: {error.strerror}.") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise StorageError(
                f"{path} is in use by another fit; wait for it, or choose another name."
            ) from error
        except OSError:
            pass  # not every file system has locks
        # The last holder may have removed it before it was locked: try again.
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)
        return None

    def release(self) -> None:
        """Let others write the file."""
        if self._handle is not None:
            self._name.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None

    __del__ = release


@contextlib.contextmanager
def _draft(path: Path) -> Iterator[tuple[int, Path]]:
    """A temporary file beside the path, locked while it is written; removed on failure."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f"{_beside(path)}.", suffix=_DRAFT, dir=path.parent)
        lock = _locked(handle)
        # Another writer may have removed it as abandoned before it was locked: try again.
        if os.fstat(handle).st_nlink:
            break
        os.close(handle)  # pragma: no cover
    try:
        yield handle, Path(name)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _locked(handle: int) -> int | None:
    """A second handle of the file that holds a lock on it; None without file locks."""
    if fcntl is None:  # pragma: no cover
        return None
    with contextlib.suppress(OSError):  # not every file system has locks
        fcntl.flock(handle, fcntl.LOCK_EX)
    return os.dup(handle)


def _tidy(path: Path) -> None:
    """Remove temporary files of killed writers: those that are not locked."""
    pattern = f"{glob.escape(_beside(path))}.{'?' * 8}{_DRAFT}"
    if fcntl is None:  # pragma: no cover
        return
    for draft in path.parent.glob(pattern):
        with contextlib.suppress(OSError), draft.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()


def _sync_folder(folder: Path) -> None:
    """Flush the directory entry to disk, where the file system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
