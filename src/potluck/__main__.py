"""`python -m potluck` is `potluck`."""

from potluck.cli import main

if __name__ == "__main__":
    main()
