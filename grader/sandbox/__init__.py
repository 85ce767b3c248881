"""The child process that a learner's code runs in, and the frames that its two ends exchange."""
