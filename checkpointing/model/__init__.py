"""The data types that every other package uses: jobs, checkpoints, messages, settings. Data only, no I/O."""
