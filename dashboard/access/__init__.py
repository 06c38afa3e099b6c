"""Who may see and do what: roles, what each reaches, and the guard at every door."""
