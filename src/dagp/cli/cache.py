"""Persistent compilation cache of the command line: compiled programs are kept between runs."""

import contextlib
import hashlib
import os
import platform
import sys
from pathlib import Path


def cache_folder() -> Path | None:
    """Folder for compiled programs; None if the cache is off or not supported here."""
    off = os.environ.get("DAGP_CACHE", "").lower() in ("off", "0", "no", "false")
    # On other systems than Linux, reading back large programs has crashed.
    if off or sys.platform != "linux":
        return None
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "dagp" / f"compiled-{_processor_hash()}"


def _processor_hash() -> str:
    """Hash of the processor type: a program compiled for another type may not run on this one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        flags = platform.processor()
    return hashlib.blake2b(f"{platform.machine()} {flags}".encode(), digest_size=6).hexdigest()


def keep_compiled() -> None:
    """Set JAX's cache folder unless the environment sets one; call before JAX is imported."""
    # A missing or read-only home folder is no error: the commands run without a cache.
    with contextlib.suppress(OSError, RuntimeError):
        folder = cache_folder()
        if folder is None or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
            return
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
        # XLA lists its own tuning flags as features that the processor lacks, and logs a long
        # warning about them for every program it reads back.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
