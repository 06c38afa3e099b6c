"""Why something happened or did not happen: a code with arguments, of which text is made when somebody reads it.

`reason.py` has the value and its text, `columns.py` the way into a table. Every other module has the codes of one area.
"""
