"""`python -m tustin` is the `tustin` command, which launchers such as torchrun need."""

import sys

from .cli import main

sys.exit(main())
