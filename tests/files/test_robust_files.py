"""What must not break: files that are used twice, forged, or from later versions."""

import copy
import json
import subprocess
import sys

import filemutations
import numpy as np
import pytest
from test_damaged import OLD

from dagp import DAGP
from dagp.errors import StorageError
from dagp.files import format as storage
from dagp.files import modelfile
from dagp.files.atomic import Hold

X = np.linspace(0, 1, 24)[:, None]
Y = np.sin(6 * X[:, 0])
QUICK = {"n_init": 1, "max_iter": 40, "tol": 1e-9, "inducing": 6, "random_state": 0}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The checkpoint of a fit that was interrupted; meanwhile, another one was refused."""
    path = tmp_path_factory.mktemp("stopped") / "fit.checkpoint"
    refusals = []

    def interrupt(step):
        if not path.exists() or storage.load(path, modelfile.CHECKPOINT)["progress"] is None:
            return
        for resume in (False, True):
            with pytest.raises(StorageError, match="in use by another fit") as caught:
                DAGP(2, **QUICK, checkpoint=path, resume=resume).fit(X, Y)
            refusals.append(caught.value)
        raise KeyboardInterrupt

    model = DAGP(2, **QUICK, checkpoint=path, checkpoint_every=0, callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert len(refusals) == 2
    return path


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_two_fits_do_not_share_a_checkpoint(stopped):
    assert [file.name for file in stopped.parent.iterdir()] == [stopped.name]
    again = DAGP(2, **QUICK, checkpoint=stopped.with_name("copy"), resume=True)
    stopped.with_name("copy").write_bytes(stopped.read_bytes())
    whole = DAGP(2, **QUICK).fit(X, Y)
    assert again.fit(X, Y).lower_bound_ == whole.lower_bound_
    assert [file.name for file in stopped.parent.iterdir()] == [stopped.name]


def test_another_process_does_not_share_a_file(tmp_path):
    path = tmp_path / "file"
    program = f"from dagp.files.atomic import Hold; Hold({str(path)!r})"
    held = Hold(path)
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "in use by another fit" in other.stderr
    held.release()
    assert not list(tmp_path.iterdir())
    Hold(path).release()


FORGED = {
    "negative steps": lambda run: run._replace(done=-3),
    "negative rate": lambda run: run._replace(rate=-0.5),
    "no bound": lambda run: run._replace(bound=float("nan")),
    "doubled responsibilities": lambda run: run._replace(
        state=run.state._replace(responsibilities=2 * run.state.responsibilities)
    ),
    "negative responsibilities": lambda run: run._replace(
        state=run.state._replace(responsibilities=1.5 - 2 * run.state.responsibilities)
    ),
    "swapped arrays": lambda run: run._replace(
        state=run.state._replace(responsibilities=run.state.responsibilities.T)
    ),
    "another kind": lambda run: tuple(run),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_forged_checkpoints_are_refused(stopped, tmp_path, forge):
    tree = storage.load(stopped, modelfile.CHECKPOINT)
    tree["progress"] = forge(tree["progress"])
    path = storage.save(tmp_path / "forged", modelfile.CHECKPOINT, {"runs": 0}, tree)
    with pytest.raises(StorageError, match="does not hold the training runs of this fit"):
        DAGP(2, **QUICK, checkpoint=path, resume=True).fit(X, Y)
    assert path.exists()


def _forged_model(change):
    tree = storage.load(OLD, modelfile.MODEL)
    tree = {"data": tree["data"], "estimator": copy.deepcopy(tree["estimator"])}
    change(tree["estimator"])
    return tree


def _steps(parts):
    parts["fitted"]["restarts_"][0]["steps"] = -1


def _responsibilities(parts):
    parts["fitted"]["responsibilities_"] = parts["fitted"]["responsibilities_"] * 1.1


def _order(parts):
    parts["fitted"]["responsibilities_"] = parts["fitted"]["responsibilities_"][:, ::-1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda parts: parts.update(shares=[0.9, *parts["shares"][1:]]), "sum to one"),
        (lambda parts: parts["fitted"].update(n_iter_=-5), "n_iter_ must not be negative"),
        (_steps, "steps in restarts_ must not be negative"),
        (_responsibilities, "must sum to one"),
        (_order, "assignment_ must be the column"),
    ],
)
def test_forged_models_are_refused(tmp_path, change, said):
    about = storage.describe(OLD).about
    path = storage.save(tmp_path / "m.dagp", modelfile.MODEL, about, _forged_model(change))
    with pytest.raises(StorageError, match=said):
        DAGP.load(path)


def test_files_of_later_versions_are_refused_in_words(tmp_path):
    path = DAGP.load(OLD).save(tmp_path / "model.dagp")
    content = path.read_bytes()
    tag = "model/DataAssociation"

    def written(change):
        described, arrays = filemutations.apart(content)
        path.write_bytes(filemutations.together(change(described), arrays))

    def renamed(described):
        text = json.dumps(described)
        assert tag in text
        return json.loads(text.replace(tag, "model/FromTheFuture"))

    written(renamed)
    with pytest.raises(StorageError, match="model/FromTheFuture is unknown to this version"):
        DAGP.load(path)
    written(lambda d: json.loads(json.dumps(d).replace('"n_iter_"', '"from_the_future_"')))
    with pytest.raises(StorageError, match=r"from_the_future_|n_iter_"):
        DAGP.load(path)
    written(lambda described: described | {"future": 1})
    with pytest.raises(StorageError, match="description is invalid"):
        DAGP.load(path)
