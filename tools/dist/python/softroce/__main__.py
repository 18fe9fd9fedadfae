"""`python -m softroce …` and the script `roce`: both become the command."""

import os
import sys

from softroce import roce


def main():
    """Replaces this process by `roce` with the same arguments."""
    try:
        os.execv(roce(), ["roce", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"roce: {roce()}: {error.strerror}")


if __name__ == "__main__":
    main()
