"""`ask` and `read`: a launch command, asked and read."""

from launch_fixtures import ask, read

__all__ = ["ask", "read"]
