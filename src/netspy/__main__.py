"""`python -m netspy`: the `netspy` command, where scripts aren't on the path."""

import sys

from netspy.cli import main

sys.exit(main())
