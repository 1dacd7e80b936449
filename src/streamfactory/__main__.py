"""``python -m streamfactory``: the command line."""

from streamfactory.cli.main import main

if __name__ == "__main__":
    main()
