"""Outcome -> Verdict: inputs and right answers (`case`), which shapes are tried (`check`), how an answer is compared
(`comparison`), speed (`measure`).
"""
