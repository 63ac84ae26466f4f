"""``python -m manyclass`` runs the command line."""

import sys

from manyclass.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
