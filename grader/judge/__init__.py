"""Outcome -> Verdict: inputs and references, the search for the smallest shape that fails, speed."""
