"""Sphinx configuration."""

import warnings

import matplotlib as mpl
from sphinx_gallery.sorting import FunctionSortKey

import dagp

mpl.use("agg")
# Warnings are part of what the examples show; where this machine keeps its files is not.
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
autodoc_typehints = "none"
autosummary_generate = True
# A package lists what it offers, not the files it keeps it in.
autosummary_ignore_module_all = False
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py.md5"]
html_theme = "furo"
html_title = "DAGP"
# What there is to see first, then how to do it. Every example has its place here.
GALLERY = (
    "plot_noise_separation.py",
    "plot_multimodal.py",
    "plot_real_data.py",
    "plot_cartpole.py",
    "plot_robust_regression.py",
    "plot_how_many.py",
    "plot_diagnosis.py",
    "plot_labels.py",
    "plot_priors.py",
    "plot_deep.py",
    "plot_pipeline.py",
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
