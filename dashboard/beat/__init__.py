"""Beat, any number of which may run: one ticks, the others stand by."""
