"""`python -m posse` is `posse`."""

from posse.cli import main

if __name__ == "__main__":
    main()
