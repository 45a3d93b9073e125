"""Tools for Larkline in Python's standard library alone: declare functions with `tool`, offer them with `run`."""

from .runner import run
from .tool import ArgumentError, Call, CallCancelled, Tool, ToolRun, run_tool, tool

__all__ = ["ArgumentError", "Call", "CallCancelled", "Tool", "ToolRun", "run", "run_tool", "tool"]
