"""Random fits, and what must hold of every one of them.

`cases` says what a case is and makes its data and its model, `property` what must hold,
`runner` (``python tests/fuzz.py``) runs many
cases in processes of their own.
"""
