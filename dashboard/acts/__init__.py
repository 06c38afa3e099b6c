"""What a person does, behind the pages and the REST API alike: the forms check it, these do it and write the audit."""
