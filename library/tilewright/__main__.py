"""`python -m tilewright` is the command `tilewright`, also where its script is not on the PATH."""

from __future__ import annotations

import sys

from tilewright.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
