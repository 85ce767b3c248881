"""Grades in other processes: any number in parallel. Stopping one also stops everything that it started.

One process stays warm: it has numpy, hypothesis, the compilers' paths and the catalogue. It forks for each
grade, so a grade starts at once and leaves no trace. When the process that asks has ended, for any reason, all the
others end too.

task (what is to be done, as data) · work (what a fork does with it) · lines (JSON lines between processes) · server
(the warm process) · template (a clean process, for the sandbox's children) · client (the end that asks) · replies (many
tasks, graded in so many slots).
"""
