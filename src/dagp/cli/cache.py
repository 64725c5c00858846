"""Compiled programs kept between runs of the command line, so that only the first one waits."""

import contextlib
import hashlib
import os
import platform
import sys
from pathlib import Path

__all__ = ["folder", "keep_compiled"]


def folder() -> Path | None:
    """Where compiled programs are kept; None where they are not to be."""
    if os.environ.get("DAGP_CACHE", "").lower() in ("off", "0", "no", "false"):
        return None
    # Elsewhere than on Linux, reading large programs back has been seen to crash.
    if sys.platform != "linux":
        return None
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "dagp" / f"compiled-{_machine()}"


def _machine() -> str:
    """Short for this kind of processor: a program compiled for another may not run here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        flags = platform.processor()
    return hashlib.blake2b(f"{platform.machine()} {flags}".encode(), digest_size=6).hexdigest()


def keep_compiled() -> None:
    """Tell JAX where, unless somebody has told it something else; before it is imported."""
    # A home that is not there or cannot be written: it works without.
    with contextlib.suppress(OSError, RuntimeError):
        place = folder()
        if place is None or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
            return
        place.mkdir(parents=True, exist_ok=True)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(place)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
        # The compiler takes preferences of its own for features that the processor lacks, and says
        # so at length for every program that it reads back.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
