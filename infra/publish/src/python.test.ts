import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { parserOf } from "@larkline/protocol";
import { ToolAnnouncement } from "@larkline/protocol/tool";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const backend = fileURLToPath(new URL("../../python-runner/build_backend.py", import.meta.url));
let folder: string;
/** The package as others install it: Python imports from a wheel as it stands. */
let wheel: string;

/** What a program prints, as JSON, one value a line. */
async function python(...program: string[]): Promise<unknown[]> {
  const file = join(folder, "program.py");
  await writeFile(file, program.join("\n"));
  const { stdout } = await promisify(execFile)("python3", [file], {
    env: { PATH: process.env["PATH"], PYTHONPATH: wheel, PYTHONDONTWRITEBYTECODE: "1" },
  });
  return stdout.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as unknown]));
}

const tools = `
import asyncio, json
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from larkline import Call, run_tool, tool

class Colour(Enum):
    RED = "r"
    BLUE = "b"

@dataclass
class Point:
    x: int
    y: float = 0.5

class Note(TypedDict):
    text: str
    tags: NotRequired[list[str]]

@tool(effect="pure", title={"zh": "画", "en": "Draw"}, timeout_s=2.5)
def draw(
    sides: Annotated[int, "how many", {"minimum": 2, "maximum": 9}],
    at: Point,
    colour: Colour,
    note: Note,
    places: dict[str, float] | None = None,
    style: Literal["thin", "thick"] = "thin",
    *,
    call: Call,
) -> Any:
    """Draws.

    More than one line."""
    call.progress(0.5, "half")
    call.progress(0.6, "too soon after")
    call.log("drawn")
    return [sides, at.x, at.y, colour.name, note["text"], places, style]

fits = {"sides": 4, "at": {"x": 3.0}, "colour": "b", "note": {"text": "hi"}}
`;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "larkline-python-"));
  const built = await promisify(execFile)("python3", [backend, folder]);
  wheel = built.stdout.trim();
});
afterAll(async () => await rm(folder, { recursive: true }));

describe("the Python package", () => {
  it("makes an announcement of type hints and docstring", async () => {
    const [announcement] = await python(tools, "print(json.dumps(draw.announcement()))");
    expect(parserOf(ToolAnnouncement)(announcement)).toMatchObject({ ok: true });
    expect(announcement).toMatchObject({
      effect: "pure",
      requiresApproval: false,
      timeoutMs: 2_500,
      title: { zh: "画", en: "Draw" },
      spec: {
        name: "draw",
        description: "Draws.\n\nMore than one line.",
        inputSchema: {
          type: "object",
          required: ["sides", "at", "colour", "note"],
          additionalProperties: false,
          properties: {
            sides: { type: "integer", description: "how many", minimum: 2, maximum: 9 },
            at: {
              type: "object",
              required: ["x"],
              properties: { x: { type: "integer" }, y: { type: "number" } },
            },
            colour: { enum: ["r", "b"] },
            note: {
              required: ["text"],
              properties: {
                text: { type: "string" },
                tags: { type: "array", items: { type: "string" } },
              },
            },
            places: {
              anyOf: [
                { type: "object", additionalProperties: { type: "number" } },
                { type: "null" },
              ],
            },
            style: { enum: ["thin", "thick"] },
          },
        },
      },
    });
  });

  it("runs a call with values of the hinted types, and collects what it says", async () => {
    const [outcome, reports] = await python(
      tools,
      "done = run_tool(draw, fits)",
      "print(json.dumps(done.outcome)); print(json.dumps(done.reports))",
    );
    expect(outcome).toEqual({ ok: true, result: [4, 3, 0.5, "BLUE", "hi", null, "thin"] });
    expect(reports).toEqual([
      { kind: "progress", fraction: 0.5, detail: "half" },
      { kind: "log", text: "drawn" },
    ]);
  });

  it("answers arguments that do not fit with what is wrong, and does not run", async () => {
    const cases = [
      ["[]", "the arguments must be an object"],
      ['{"sides": 4}', "at is missing"],
      [
        '{**fits, "size": 1}',
        "size is not known; there are sides, at, colour, note, places, style",
      ],
      ['{**fits, "sides": True}', "sides must be a whole number"],
      ['{**fits, "sides": 4.5}', "sides must be a whole number"],
      ['{**fits, "sides": float("inf")}', "sides must be a whole number"],
      ['{**fits, "sides": 1}', "sides breaks minimum 2"],
      ['{**fits, "at": {"x": 1, "y": "2"}}', "at.y must be a number"],
      ['{**fits, "colour": "RED"}', 'colour must be one of ["r", "b"]'],
      ['{**fits, "note": {"text": "a", "tags": ["b", 1]}}', "note.tags[1] must be a text"],
      ['{**fits, "places": {"a": None}}', "places.a must be a number, or places must be null"],
    ] as const;
    const answers = await python(
      tools,
      ...cases.map(([given]) => `print(json.dumps(run_tool(draw, ${given}).outcome))`),
    );
    expect(answers).toEqual(cases.map(([, error]) => ({ ok: false, error })));
  });

  it("stops a call that is cancelled or over, and answers what a function raises or cannot give", async () => {
    const answers = await python(
      tools,
      "@tool",
      "def wait(call: Call):",
      '    "Waits."',
      "    call.wait(60)",
      "@tool",
      "async def later(fails: bool):",
      '    "Gives something later."',
      "    await asyncio.sleep(0)",
      '    if fails: raise KeyError("k")',
      '    return "x" * 300_000',
      "for done in (",
      "    run_tool(wait, {}, cancelled=True),",
      "    run_tool(wait, {}, timeout_s=0.01),",
      '    run_tool(later, {"fails": True}),',
      '    run_tool(later, {"fails": False}),',
      "):",
      "    print(json.dumps(done.outcome))",
    );
    expect(answers).toEqual(
      [
        "the call was cancelled",
        "the call was cancelled",
        "KeyError: 'k'",
        "the result exceeds 262144 bytes",
      ].map((error) => ({ ok: false, error })),
    );
  });

  it.each([
    ["def f(x: set):\n  'F.'", "f(x): <class 'set'> has no JSON Schema"],
    ["def f(x):\n  'F.'", "f(x) needs a type hint"],
    ["def f(*x: int):\n  'F.'", "f(x): a tool takes its arguments by name"],
    ["def f(x: int): ...", "f needs a docstring"],
    ["def f(x: Annotated[int, {'least': 1}]):\n  'F.'", "f(x): least is no limit"],
    ["def f(x: dict[int, str]):\n  'F.'", "f(x): the keys of a JSON object are texts"],
  ])("refuses %j when it is declared", async (declaration, words) => {
    await expect(python(tools, "@tool", declaration)).rejects.toThrow(`TypeError: ${words}`);
  });
});
