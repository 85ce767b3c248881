"""The child process that a learner's code runs in, the frames that its two ends exchange, and the end of what the code
printed (`parent`).
"""
