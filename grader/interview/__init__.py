"""Interview mode: a plan -> katas under a clock -> one page with what happened.

clock (what time it is, and what nobody saw) · plan (level and minutes -> katas) · paper (kata -> the file handed out)
· session (the log of one interview, and what it means) · conduct (begin, grade, finish) · lookups (what the learner
looked at meanwhile) · dossier (session -> record) · page (record -> HTML) · live (the clock on screen).
"""
