"""A fitted model in words and tables. Imports `core`, `tables`, `predict` and `files`."""
