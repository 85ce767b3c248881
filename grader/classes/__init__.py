"""Submitted folders and archives -> one row per file of each student, as JSON lines, a table and CSV, and points for a
learning platform (`command`); `service/` grades them side by side.
"""
