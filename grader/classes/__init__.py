"""Folders that were handed in -> one row for each file of each student, as JSON lines, a table and CSV (`command`)."""
