"""`python -m potluck.cli` is `potluck`, for where the console script is not on the path."""

from potluck.cli import main

main()
