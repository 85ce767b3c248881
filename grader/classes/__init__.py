"""Submitted folders -> one row per file of each student, as JSON lines, a table and CSV (`command`); `service/` grades
them side by side.
"""
