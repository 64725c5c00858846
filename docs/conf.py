"""Sphinx configuration."""

import re
import warnings

import matplotlib as mpl
from sphinx_gallery.sorting import FunctionSortKey

import dagp

mpl.use("agg")
# The examples show warnings; the default format would print paths of the machine that builds.
warnings.formatwarning = lambda message, category, *_: f"{category.__name__}: {message}\n"

project = "DAGP"
author = "The DAGP authors"
copyright = "2026, The DAGP authors"
release = dagp.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["dollarmath", "amsmath"]
# Types and defaults come from the numpydoc sections: annotations with array shapes are unreadable
# in signatures.
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_preprocess_types = True
# Attributes as a list of fields, because entries of their own would repeat those autodoc makes;
# the second setting keeps the underscore at the end of fitted attributes.
napoleon_use_ivar = True
strip_signature_backslash = True
templates_path = ["_templates"]
autosummary_generate = True
# A module page lists `__all__`, re-exported names included, and no submodules.
autosummary_ignore_module_all = False
exclude_patterns = ["_build", "_templates", "gallery/*.ipynb", "gallery/*.py.md5"]
html_theme = "furo"
html_title = "DAGP"
# Order of the gallery: results first, then how-to. Every example must be listed.
GALLERY = (
    "plot_noise_separation.py",
    "plot_multimodal.py",
    "plot_real_data.py",
    "plot_cartpole.py",
    "plot_two_associations.py",
    "plot_wet_chicken.py",
    "plot_power_curve.py",
    "plot_robust_regression.py",
    "plot_how_many.py",
    "plot_reading_report.py",
    "plot_diagnosis.py",
    "plot_labels.py",
    "plot_priors.py",
    "plot_deep.py",
    "plot_pipeline.py",
    "plot_online_updates.py",
    "plot_many_rows.py",
)
sphinx_gallery_conf = {
    "within_subsection_order": FunctionSortKey(GALLERY.index, "the order of GALLERY"),
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "download_all_examples": False,
    "show_memory": False,
}
suppress_warnings = ["config.cache"]


def skip_member(app, what, name, obj, skip, options):
    """Leave out the metadata-routing methods that scikit-learn adds to every estimator."""
    return True if re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def drop_alias(app, what, name, obj, options, lines):
    """Drop the docstrings that Python gives to the fields of named tuples."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def setup(app):
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", drop_alias)
