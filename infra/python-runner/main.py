"""The tools of this deployable."""

import statistics
from typing import Annotated

from larkline import run, tool


@tool(effect="pure")
def describe_numbers(numbers: Annotated[list[float], {"minItems": 1, "maxItems": 100_000}]) -> dict:
    """Count, mean, median and standard deviation of a list of numbers."""
    return {
        "count": len(numbers),
        "mean": statistics.fmean(numbers),
        "median": statistics.median(numbers),
        "deviation": statistics.pstdev(numbers),
    }


if __name__ == "__main__":
    run()
