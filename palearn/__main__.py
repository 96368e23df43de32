"""``python -m palearn`` is ``palearn``."""

from palearn.cli import main

if __name__ == "__main__":
    main()
