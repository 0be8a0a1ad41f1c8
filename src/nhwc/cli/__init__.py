"""The command line: one file per command, which parses, calls ``nhwc.api`` and turns the answer into an exit code."""
