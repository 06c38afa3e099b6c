"""The task side, in the driver process: checkpoint agent, snapshots, restore, measured figures."""
