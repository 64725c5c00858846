"""The Slurm recipe of docs/large.md; `slurm.py` runs it on a private Slurm."""

import subprocess
import tempfile
from pathlib import Path

import pytest
import slurm


def test_the_recipe_is_on_the_page():
    script = slurm.recipe()
    assert script.startswith("#!/bin/bash\n#SBATCH ") and "srun" in script
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "restarts", "requeued"),
    [(0, "", False), (2, "", False), (75, "", True), (137, "2", True), (137, "3", False)],
)
def test_which_ends_of_a_job_requeue_it(code, restarts, requeued, tmp_path):
    """With programs in place of Slurm's: what the recipe itself decides."""
    for name, text in {"srun": f"exit {code}", "scontrol": 'echo "$@" > requeued'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    names = {"SLURM_JOB_ID": "7"} | ({"SLURM_RESTART_COUNT": restarts} if restarts else {})
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **names}
    done = subprocess.run(["bash", "-c", slurm.recipe()], cwd=tmp_path, env=environment)
    assert done.returncode == code
    assert (tmp_path / "requeued").exists() == requeued
    assert not requeued or (tmp_path / "requeued").read_text() == "requeue 7\n"


needs_slurm = pytest.mark.skipif(bool(slurm.missing()), reason="Slurm is not installed.")


@pytest.mark.slow
@needs_slurm
def test_a_requeued_job_ends_with_the_model_of_an_undisturbed_one():
    told = []
    slurm.try_recipe(told.append)
    assert told[-1].endswith("the same to the last bit")


@pytest.mark.slow
@needs_slurm
def test_an_error_leaves_no_daemon_and_no_task():
    # Sockets have short names only, so not in the folder of a test.
    with tempfile.TemporaryDirectory(prefix="dagp-slurm-") as name:
        place = Path(name)
        with pytest.raises(KeyError), slurm.private_slurm(place) as running:
            (place / "fit.sh").write_text("#!/bin/sh\nsrun sleep 1000\n")
            number = running.submit(place / "fit.sh")
            slurm.wait_until(lambda: running.job(number, place).state == "RUNNING", "it runs")
            assert len(running.left()) > 4
            raise KeyError("a mistake in the middle")
        assert not running.left()
