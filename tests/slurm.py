"""Tries the Slurm recipe of docs/large.md on a private Slurm: `python tests/slurm.py`.

Needs Slurm and MUNGE (on Debian `slurm-wlm` and `munge`), installs nothing and needs no root. A
controller, two nodes and MUNGE run in a temporary folder and listen on loopback. The recipe is read
from the page and submitted twice, with two tasks: once undisturbed; once with a task killed when
there is a checkpoint, after which the job must requeue itself and end with the same model, to the
last bit. At the end, and after errors, no process and no file is left.
"""

import contextlib
import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[1] / "docs" / "large.md"
SOURCE = Path(__file__).parents[1] / "src"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
LIMIT = 600.0
"""Seconds for a job."""
SMALL = "--processes 1 --noise-process --starts 2 --inducing 8 --max-iter 50 --checkpoint-every 0"
"""A small fit, with a checkpoint after every block of steps."""
CONFIGURATION = """\
ClusterName=dagp
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
NodeName=127.0.0.1 NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=127.0.0.2 NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
"""Nodes are called by addresses of loopback: tasks find the first one by its name. A credential
expires after a few seconds instead of minutes, and a requeued job starts again only then."""


def missing() -> list[str]:
    """Programs that are needed and not there."""
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


def recipe() -> str:
    """The batch script in docs/large.md."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (script,) = [block for block in blocks if "#SBATCH" in block]
    return script


class Job(NamedTuple):
    """What Slurm says about a job."""

    state: str
    restarts: int
    output: str


class Slurm:
    """A private Slurm of two nodes."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.environment = os.environ | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{folder / 'bin'}:{_path()}",
            "PYTHONPATH": f"{SOURCE}:{os.environ.get('PYTHONPATH', '')}",
            # Small models and many programs: quick compilation is worth more than quick code.
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }

    def start(self, stack: contextlib.ExitStack) -> None:
        """Start all daemons; `stack` ends them and whatever they have started."""
        folder = self.folder
        for name in ("state", "spool-127.0.0.1", "spool-127.0.0.2", "bin"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        (folder / "bin" / "dagp").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dagp "$@"\n')
        (folder / "bin" / "dagp").chmod(0o755)
        values: dict[str, Any] = {"folder": folder, "user": getpass.getuser()}
        (folder / "slurm.conf").write_text(CONFIGURATION.format(ports=_free_ports(3), **values))
        stack.callback(self._end_all)
        munge = {
            "socket": "munge.socket",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        files = [f"--{option}={folder / name}" for option, name in munge.items()]
        # --force: folders that others may write to, such as that for temporary files, are no fault.
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}", *files)
        wait_until((folder / "munge.socket").exists, "munged listens")
        self._daemon("slurmctld", "-D", "-i")
        for node in ("127.0.0.1", "127.0.0.2"):
            self._daemon("slurmd", "-D", "-N", node)
        wait_until(
            lambda: self.call("sinfo", "-h", "-o", "%t %D").split() == ["idle", "2"], "nodes idle"
        )

    def submit(self, script: Path, *options: str) -> str:
        """Submit a batch script with two tasks; returns the number of the job."""
        words = ("--parsable", "--nodes=2", str(script), *options)
        return self.call("sbatch", *words, cwd=script.parent).strip()

    def job(self, number: str, folder: Path) -> Job:
        """The job as it is now."""
        facts = dict(
            pair.split("=", 1)
            for pair in self.call("scontrol", "show", "job", number).split()
            if "=" in pair
        )
        output = folder / f"slurm-{number}.out"
        told = output.read_text(errors="replace") if output.exists() else ""
        return Job(facts["JobState"], int(facts["Restarts"]), told)

    def wait(self, number: str, folder: Path) -> Job:
        """The job at its end."""
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        wait_until(lambda: self.job(number, folder).state in ends, f"job {number} ends", LIMIT)
        return self.job(number, folder)

    def task(self, rank: int) -> int | None:
        """Process id of a task of `dagp fit`, once it is there."""
        for pid, environment in self._processes():
            words = _read(f"/proc/{pid}/cmdline")
            if f"\0SLURM_PROCID={rank}\0" in f"\0{environment}" and "\0dagp\0fit\0" in words:
                return pid
        return None

    def call(self, program: str, *words: str, cwd: Path | None = None) -> str:
        """The output of a command of Slurm."""
        done = subprocess.run(
            [program, *words],
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode and program != "sinfo":
            raise RuntimeError(f"{program} {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _daemon(self, program: str, *words: str) -> None:
        path = shutil.which(program, path=_path())
        with (self.folder / f"{program}{words[-1].replace('/', '_')}.out").open("wb") as output:
            daemon = subprocess.Popen(
                [str(path), *words],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._daemons.append(daemon)

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Processes of this Slurm, known by its configuration in their environment."""
        mark = f"\0SLURM_CONF={self.environment['SLURM_CONF']}\0"
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal() and mark in (found := f"\0{_read(folder / 'environ')}"):
                yield int(folder.name), found

    def _end_all(self) -> None:
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            self.call("scancel", "--full", f"--user={getpass.getuser()}")
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid, _ in self._processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: not self.left(), "all processes end", 10.0)
        for daemon in self._daemons:
            daemon.wait()

    def left(self) -> list[int]:
        """Processes of this Slurm that still run."""
        return [pid for pid, _ in self._processes()]


def _path() -> str:
    # Debian keeps daemons in folders that are not in the path of users.
    return f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_until(condition: Callable[[], bool], what: str, limit: float = 60.0) -> None:
    until = time.monotonic() + limit
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {limit:.0f} seconds")
        time.sleep(0.1)


@contextlib.contextmanager
def private_slurm(folder: Path) -> Iterator[Slurm]:
    """A Slurm that runs inside the ``with`` block, with all its files in `folder`."""
    slurm = Slurm(folder)
    with contextlib.ExitStack() as stack:
        slurm.start(stack)
        yield slurm


def write_data(path: Path) -> None:
    """A table as the recipe reads it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dagp import datasets

    data = datasets.noise_separation(0.3, n=60, random_state=1)
    pq.write_table(pa.table({"speed": data.X[:, 0], "power": data.y}), path)


def differences(one: Path, other: Path) -> list[str]:
    """Names of arrays and facts in which two models differ."""
    import jax
    import numpy as np
    import pyarrow as pa

    from dagp import DAGP

    models = [DAGP.load(path) for path in (one, other)]
    grid = {"speed": np.linspace(-3, 3, 50)}
    found = [
        {
            "lower bounds": model.lower_bounds_,
            "responsibilities": model.responsibilities_,
            "predictions": np.concatenate(model.predict(pa.table(grid), return_std=True)),
            **{f"part {i}": leaf for i, leaf in enumerate(jax.tree.leaves(model.posterior_))},
        }
        for model in models
    ]
    assert found[0].keys() == found[1].keys()
    same = {name: np.array_equal(found[0][name], found[1][name]) for name in found[0]}
    return [name for name, equal in same.items() if not equal]


def try_recipe(say: Callable[[str], Any] = print) -> None:
    """Raise AssertionError if the requeued job does not end with the model of the other one."""
    # Sockets have short names only, so not in the folder of a test.
    with tempfile.TemporaryDirectory(prefix="dagp-slurm-") as name:
        with private_slurm(Path(name)) as slurm:
            _try(slurm, Path(name), say)
        assert not (left := slurm.left()), f"processes are left: {left}"
    assert not Path(name).exists()


def _try(slurm: Slurm, folder: Path, say: Callable[[str], Any]) -> None:
    places = [folder / "undisturbed", folder / "killed"]
    for place in places:
        place.mkdir()
        write_data(place / "data.parquet")
        (place / "fit.sh").write_text(recipe())
    whole = slurm.wait(slurm.submit(places[0] / "fit.sh", *SMALL.split()), places[0])
    assert whole.state == "COMPLETED" and whole.restarts == 0, whole
    say("undisturbed: completed")
    checkpoint = places[1] / "model.dagp.checkpoint"
    number = slurm.submit(places[1] / "fit.sh", *SMALL.split())
    wait_until(checkpoint.exists, "there is a checkpoint", LIMIT)
    victim = slurm.task(1)
    assert victim is not None, slurm.job(number, places[1])
    os.kill(victim, signal.SIGKILL)
    say("a task is killed at the first checkpoint")
    ended = slurm.wait(number, places[1])
    assert ended.state == "COMPLETED" and ended.restarts == 1, ended
    assert ended.output.count("starts from the beginning") == 1, ended
    assert not checkpoint.exists()
    assert not (found := differences(*(p / "model.dagp" for p in places))), found
    say("requeued once, resumed, completed: the model is the same to the last bit")


if __name__ == "__main__":
    if absent := missing():
        raise SystemExit(f"Not installed: {', '.join(absent)}.")
    # `kill` cleans up as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try_recipe()
