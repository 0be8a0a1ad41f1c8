"""Suites: many models measured one after the other, each in a process of its own, into a folder that resumes."""

from nhwc.suites.folder import Folder
from nhwc.suites.processes import Command, run
from nhwc.suites.selection import Job, jobs, known_suites, suite_named

__all__ = ["Command", "Folder", "Job", "jobs", "known_suites", "run", "suite_named"]
