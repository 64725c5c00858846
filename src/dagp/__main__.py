"""`python -m dagp` is the `dagp` command."""

from dagp.cli import main

if __name__ == "__main__":
    main()
