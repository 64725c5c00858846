"""Sphinx configuration."""

import matplotlib as mpl

import dagp

mpl.use("agg")

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
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "download_all_examples": False,
    "show_memory": False,
}
suppress_warnings = ["config.cache"]
