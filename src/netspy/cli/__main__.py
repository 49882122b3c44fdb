"""`python -m netspy.cli`: the `netspy` command of this interpreter."""

import sys

from netspy.cli import main

sys.exit(main())
