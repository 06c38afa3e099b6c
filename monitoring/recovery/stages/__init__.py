"""The stages of an attempt, one file each: check the snapshot, stop the job, start it, wait until it runs."""
