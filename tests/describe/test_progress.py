"""The log of a fit, and the bar of `progress=True`, in terminals, notebooks and files."""

import io
import logging
import re
import sys
import types
import warnings
from contextlib import contextmanager

import pytest

from dagp import DAGP, datasets
from dagp.core.log import lines_shown, logger
from dagp.describe.progress import following
from dagp.inference.train import Progress

STEPS = [Progress("race", 0, 25, -50.0), Progress("train", 2, 100, -12.345)]
LINE = "train: start 2, step 100, ELBO -12.35"


@contextmanager
def handlers(*given):
    """The root logger with these handlers, without those that pytest puts in for each phase."""
    root = logging.getLogger()
    kept, root.handlers = root.handlers, list(given)
    try:
        yield
    finally:
        root.handlers = kept


@pytest.fixture(autouse=True)
def restored():
    """The logger must be left as it was."""
    before = logger.level, list(logger.handlers)
    yield
    assert (logger.level, list(logger.handlers)) == before


def follow(*given, **settings):
    """Some steps of a fit with these settings, and these handlers of the log."""
    with handlers(*given), following(DAGP(**settings)) as callback:
        return [callback(step) for step in STEPS]


def test_verbose_prints_without_any_configuration(capsys):
    data = datasets.noise_separation(outliers=0.0, n=40, random_state=0)
    quick = {"n_init": 2, "tol": 1e-1, "inducing": 7, "random_state": 0}
    with handlers():
        DAGP(1, verbose=1, **quick).fit(data.X, data.y)
    shown = capsys.readouterr()
    assert re.match(r"race: start 0, step \d+, ELBO -?\d+\.\d\d\n", shown.out)
    assert not shown.err
    with handlers():
        DAGP(1, **quick).fit(data.X, data.y)
    assert not "".join(capsys.readouterr())


def test_a_configured_handler_gets_the_lines_and_stdout_does_not(capsys):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
    follow(handler, verbose=1)
    assert stream.getvalue().splitlines()[-1] == f"dagp INFO {LINE}"
    assert not capsys.readouterr().out


def test_without_verbose_the_lines_are_for_debugging(caplog):
    follow(caplog.handler)
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, logger="dagp"):
        follow(caplog.handler)
    assert (caplog.records[-1].levelno, caplog.records[-1].getMessage()) == (logging.DEBUG, LINE)


def test_fits_at_the_same_time_show_a_line_once(capsys):
    with handlers(), lines_shown():
        with lines_shown():
            logger.info("both")
        logger.info("one")
    logger.info("none")
    assert capsys.readouterr().out == "both\none\n"


def test_lines_end_with_a_fit_that_fails():
    with pytest.raises(RuntimeError), following(DAGP(verbose=1)):
        raise RuntimeError


def test_a_callback_that_stops_stops_with_a_bar_too(monkeypatch):
    terminal(monkeypatch)
    assert follow(progress=True) == [False, False]
    assert follow(progress=True, callbacks=[lambda step: step.phase == "train"]) == [False, True]


def terminal(monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return stream


def test_a_terminal_shows_a_bar(monkeypatch, capsys):
    pytest.importorskip("rich")
    stream = terminal(monkeypatch)
    follow(progress=True)
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", stream.getvalue())
    assert "train, start 3, step 100" in text
    assert "ELBO -12.3" in text
    assert "━" in text
    assert not capsys.readouterr().out


def test_a_terminal_without_rich_gets_lines(monkeypatch, capsys):
    stream = terminal(monkeypatch)
    monkeypatch.setattr("dagp.describe.progress.find_spec", lambda name: None)
    monkeypatch.setattr("dagp.describe.progress.LOG_INTERVAL", 0.0)
    follow(progress=True)
    assert capsys.readouterr().out.splitlines()[-1] == "train, start 3, step 100, ELBO -12.3"
    assert not stream.getvalue()


@pytest.mark.parametrize(("interval", "lines"), [(0.0, 2), (1e9, 0)])
def test_a_file_gets_a_line_now_and_then(monkeypatch, capsys, interval, lines):
    monkeypatch.setattr("dagp.describe.progress.LOG_INTERVAL", interval)
    follow(progress=True)
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == lines
    assert not shown.err


class Notebook:
    """What the library uses of IPython, with a kernel as in a notebook or without."""

    def __init__(self, monkeypatch, kernel):
        self.shown = []
        shell = types.SimpleNamespace(**({"kernel": object()} if kernel else {}))
        module = types.ModuleType("IPython")
        module.get_ipython = lambda: shell
        display = types.ModuleType("IPython.display")
        display.HTML = str
        display.display = self.display
        monkeypatch.setitem(sys.modules, "IPython", module)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, html, display_id):
        assert display_id
        self.shown.append(html)
        return types.SimpleNamespace(update=self.shown.append)


def test_a_notebook_shows_a_bar(monkeypatch, capsys):
    notebook = Notebook(monkeypatch, kernel=True)
    follow(progress=True)
    first, race, train, last = notebook.shown
    assert "compiling" in first
    assert "value=" not in race
    assert 'value="0.100"' in train
    assert "train, start 3, step 100, ELBO -12.3" in train
    assert 'value="1.000"' in last
    assert not "".join(capsys.readouterr())


def test_ipython_in_a_terminal_is_no_notebook(monkeypatch):
    notebook = Notebook(monkeypatch, kernel=False)
    follow(progress=True)
    assert not notebook.shown


def test_progress_belongs_to_a_run_and_is_not_saved(tmp_path):
    data = datasets.noise_separation(outliers=0.0, n=40, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DAGP(1, n_init=2, tol=1e-1, inducing=7, random_state=0, progress=True)
        model.fit(data.X, data.y)
    again = DAGP.load(model.save(tmp_path / "model.dagp"))
    assert again.progress is False
