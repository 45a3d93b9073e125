import { readFile } from "node:fs/promises";
import { compileJsonSchema } from "@larkline/protocol/json-schema";
import {
  agentEventSchemas,
  chatMessageSchemas,
  loadMessage,
  StructuredModels,
} from "@larkline/protocol/views/chat-messages";
import { describe, expect, it } from "vitest";
import { root } from "./document.ts";

const file = await readFile(`${root}/docs/tool-protocol/chat-messages.json`, "utf8");
const published = JSON.parse(file) as { $defs: Record<string, object> }; // checked against the code beside this test
const names = [...Object.keys(chatMessageSchemas), ...Object.keys(agentEventSchemas)] as Parameters<
  typeof loadMessage
>[0][];

const call = { id: "c", arguments: "{", name: "n" };
const image = { data: "AAAA" };
const complete = {
  source: "a",
  content: "x",
  target: "b",
  request_id: "r",
  retry_attempt: 0,
  code_blocks: [],
  result: { exit_code: 0, output: "" },
};

/** Values of fields that some class takes and another, or none, does not. */
const values: Record<string, unknown[]> = {
  source: ["", 5, undefined],
  models_usage: [
    null,
    { prompt_tokens: 1, completion_tokens: 2 },
    { prompt_tokens: 1.5, completion_tokens: 2 },
    {},
  ],
  metadata: [{}, { k: "v" }, { k: 5 }, null],
  created_at: [
    "2025-05-23T10:00:00Z",
    "2025-05-23T10:00:00",
    "2025-02-30T10:00:00Z",
    "today",
    null,
  ],
  content: [
    "",
    [],
    [call],
    [image],
    ["x", image],
    ["x", null],
    [{ ...call, arguments: {} }],
    {},
    undefined,
  ].concat([
    [{ content: "", name: "n", call_id: "c", is_error: null }],
    [{ content: {}, mime_type: "x" }],
  ] as never),
  target: ["b", undefined],
  context: [
    [],
    [{ content: "x" }],
    [{ content: "x", type: "SystemMessage" }],
    [{ content: [call], type: "AssistantMessage", source: "a" }],
  ],
  request_id: ["r", undefined],
  retry_attempt: [-1, 0.5, undefined],
  code_blocks: [[{ code: "1", language: "" }], [{}], undefined],
  result: [{ exit_code: 0.5, output: "" }, undefined],
  type: [...names, "Note", undefined],
  colour: ["red"],
};

function* variants(): Generator<Record<string, unknown>> {
  for (const [field, list] of Object.entries(values)) {
    for (const value of list) {
      for (const content of ["x", [], "", undefined]) {
        const data: Record<string, unknown> = { ...complete, content, [field]: value };
        yield Object.fromEntries(Object.entries(data).filter(([, one]) => one !== undefined));
      }
    }
  }
}

describe("the published schemas of chat messages", () => {
  it.each(names)("CM-42: %s accepts exactly what is read as one", (name) => {
    const check = compileJsonSchema(
      published.$defs[name] ?? expect.fail(`${name} is not published`),
    );
    const verdicts = [...variants()].map((data) => {
      const isRead = loadMessage(name, data).ok;
      expect({ data, ok: check(data).ok }).toEqual({ data, ok: isRead });
      return isRead;
    });
    expect(new Set(verdicts)).toEqual(new Set([true, false]));
  });

  it("CM-42: StructuredMessage accepts exactly what is read as one, of any form", () => {
    const check = compileJsonSchema(
      published.$defs["StructuredMessage"] ?? expect.fail("it is not published"),
    );
    const registry = new StructuredModels();
    registry.register("Note", { type: "object" });
    for (const fields of [
      {},
      { type: "StructuredMessage[Note]" },
      { type: "Note" },
      { content: [] },
      { format_string: 5 },
      { source: 5 },
    ]) {
      const data = { source: "a", content: { k: 1 }, ...fields };
      expect({ data, ok: check(data).ok }).toEqual({ data, ok: registry.load(data, "Note").ok });
    }
  });
});
