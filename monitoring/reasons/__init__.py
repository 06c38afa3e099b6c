"""Reasons why something happened or did not happen: a code with arguments. Text is rendered when a person reads it.

`reason.py` has the class and renders text, `columns.py` stores reasons in tables. Each other module has the codes of
one area.
"""
