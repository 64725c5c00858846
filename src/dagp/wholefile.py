"""Files that are written whole or not at all."""

import contextlib
import glob
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from dagp.errors import StorageError

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover  (Windows: drafts of the dead stay)
    fcntl = None

__all__ = ["discard", "replace"]

_DRAFT = ".draft"


def replace(path: str | Path, fill: Callable[[BinaryIO], None]) -> Path:
    """Write a file so that at every moment the path holds the old one or the new one, whole.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     replace(f"{folder}/a", lambda file: file.write(b"whole")).read_bytes()
    b'whole'
    """
    path = Path(path)
    try:
        with _draft(path) as (handle, draft):
            with os.fdopen(handle, "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(draft, 0o666 & ~mask)
            os.replace(draft, path)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror or error}.") from error
    _sync_folder(path.parent)
    _tidy(path)
    return path


def discard(path: str | Path) -> None:
    """Remove a file, if it is there, with what killed writers left beside it.

    >>> discard("a file that is not there")
    """
    path = Path(path)
    path.unlink(missing_ok=True)
    _tidy(path)


@contextlib.contextmanager
def _draft(path: Path) -> Iterator[tuple[int, Path]]:
    """A new file beside the path, locked until the end; removed where it comes to nothing."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_DRAFT, dir=path.parent)
        lock = _locked(handle)
        # Before it was locked somebody may have taken it for abandoned: then another one.
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
    """Another handle of the file, which holds a lock on it; None where there are no locks."""
    if fcntl is None:  # pragma: no cover
        return None
    with contextlib.suppress(OSError):  # not every file system has locks
        fcntl.flock(handle, fcntl.LOCK_EX)
    return os.dup(handle)


def _tidy(path: Path) -> None:
    """Remove what writers left beside the path who were killed: nobody holds the lock of it."""
    pattern = f".{glob.escape(path.name)}.{'?' * 8}{_DRAFT}"
    if fcntl is None:  # pragma: no cover
        return
    for draft in path.parent.glob(pattern):
        with contextlib.suppress(OSError), draft.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the new name itself last; not every file system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # pragma: no cover
        return
    try:
        os.fsync(handle)
    except OSError:  # pragma: no cover
        pass
    finally:
        os.close(handle)
