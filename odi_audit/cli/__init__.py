"""The command line: one file for each command, each parse → one library call → render.

Owns options, exit statuses and output. Must never hold logic that a Python caller would miss.
"""
