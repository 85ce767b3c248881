"""Interview mode: a plan -> katas under a clock -> one page with what happened.

clock (what time it is, and what none saw) · plan (level and minutes -> katas) · handout (kata -> the file handed out)
· session (the log of one interview, and what it means) · run (begin, grade, finish) · lookups (what the learner
looked at meanwhile) · report_data (session -> record) · page (record -> HTML) · live (the clock on screen).
"""
