"""`python -m chronik` is the `chronik` command."""

from chronik.cli import main

main()
