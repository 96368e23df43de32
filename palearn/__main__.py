"""``palearn``, and ``python -m palearn``."""

import sys


def main() -> None:
    """Run the command line. A stream can be asked to stop while all else is loaded."""
    if sys.argv[1:2] == ["stream"]:
        from palearn.spark.stopping import STOP

        STOP.listen()
    from palearn.cli import main as command

    command()


if __name__ == "__main__":
    main()
