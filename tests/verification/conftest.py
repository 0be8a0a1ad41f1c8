"""What is not collected."""

#: Registers operators, which a second import, to look for doctests, would register again.
collect_ignore = ["planted.py"]
