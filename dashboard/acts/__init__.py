"""The actions of people, for the pages and the REST API. Forms validate the input; an action does it and logs it."""
