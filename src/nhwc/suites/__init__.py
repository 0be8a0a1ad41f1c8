"""Suites: many models measured one after the other, each in a process of its own, into a folder that resumes."""

from nhwc.suites.folder import Folder
from nhwc.suites.jobs import Job, jobs, known_suites, suite_named
from nhwc.suites.run import Command, run

__all__ = ["Command", "Folder", "Job", "jobs", "known_suites", "run", "suite_named"]
