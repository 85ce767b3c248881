"""Makes `pytest exercises` grade katas; see grader/pytest_plugin.py."""

pytest_plugins = ["grader.pytest_plugin"]
