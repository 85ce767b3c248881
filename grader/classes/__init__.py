"""Folders that were handed in -> one row for each file of each student."""
