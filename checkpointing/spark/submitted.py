"""The main script of a driver inside a cluster, because spark-submit runs a file, not a module."""

import sys

from checkpointing.spark.driver import exit_process, main

if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
