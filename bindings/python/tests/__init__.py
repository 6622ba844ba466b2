"""Tests of the package: `python -m unittest discover -s bindings/python -t bindings/python`."""
