"""What an attempt goes through, one file each: check the state, stop the job, start it, wait until it runs."""
