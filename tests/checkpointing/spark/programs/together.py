"""Several example programs as one job. Each program is a query with a separate directory."""

import importlib


def program(spark, args):
    names = args["names"].split(",")
    directories = [{end: f"{args[end]}/{name}" for end in ("input", "output")} for name in names]
    programs = [importlib.import_module(name).program for name in names]
    return [each(spark, its) for each, its in zip(programs, directories, strict=True)]
