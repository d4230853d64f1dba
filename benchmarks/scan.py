"""The selective scan beside its peers: `tustin bench scan`, with the same options; docs/performance.md explains it."""

import sys

from tustin.cli import main

if __name__ == "__main__":  # the benchmark starts processes that import this file
    sys.exit(main(["bench", "scan", *sys.argv[1:]]))
