"""What comes in: tables read cell by cell, rows and settings checked. Imports `core`, `model` and
`inference`."""
