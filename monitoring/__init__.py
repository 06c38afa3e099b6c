"""Watch, remember, alert, save, restart."""
