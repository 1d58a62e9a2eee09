"""`python -m barnabas`: the same as `barnabas`."""

import sys

from barnabas.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
