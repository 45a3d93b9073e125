"""The tools of this deployable."""

import statistics

from larkline_runner import Tool, run

numbers = {
    "type": "object",
    "properties": {"numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 100_000}},
    "required": ["numbers"],
    "additionalProperties": False,
}


def describe(arguments: dict) -> dict:
    values = arguments["numbers"]
    return {
        "count": len(values),
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "deviation": statistics.pstdev(values),
    }


if __name__ == "__main__":
    run(
        [
            Tool(
                name="describe_numbers",
                description="Count, mean, median and standard deviation of a list of numbers.",
                input_schema=numbers,
                run=describe,
                effect="pure",
            )
        ]
    )
