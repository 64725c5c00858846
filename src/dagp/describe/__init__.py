"""A fitted model in words and tables: summary, explanations, export to xarray. Imports `core` and
`predict`."""
