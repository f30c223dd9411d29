"""``python -m oomproof``, where the ``oomproof`` command is not on the path."""

import sys

from oomproof.cli import main

sys.exit(main())
