"""Pauses and limits of jobs: written by commands, followed by the jobs that run."""
