import { describe, expect, expectTypeOf, it } from "vitest";
import {
  addItemUsage,
  AgentsError,
  dumpRunItem,
  extractLastContent,
  extractLastText,
  inputToNewInputList,
  ModelBehaviorError,
  noItemUsage,
  runItemOf,
  textMessageOutput,
  textMessageOutputs,
  toInputItem,
  toInputItems,
  toolCallOutputItem,
} from "./item-helpers.ts";
import {
  itemSchemas,
  parseModelResponse,
  parseRunItem,
  type FunctionCall,
  type InputItem,
  type OutputItem,
  type OutputMessage,
  type OutputPart,
  type RunItem,
  type RunItemOf,
  type ToolCallRaw,
  type ToolOutputRaw,
} from "./run-items.ts";

const text = (value: string): OutputPart => ({ type: "output_text", text: value, annotations: [] });
const refusal = (value: string): OutputPart => ({ type: "refusal", refusal: value });
const odd = { type: "hologram" } as unknown as OutputPart; // of a later version

function message(...content: OutputPart[]): OutputMessage {
  return { type: "message", id: "msg_1", role: "assistant", status: "completed", content };
}

function messageItem(...content: OutputPart[]): RunItemOf<"message_output_item"> {
  return { type: "message_output_item", agent: "main", rawItem: message(...content) };
}

const call: FunctionCall = {
  type: "function_call",
  id: "fc_1",
  call_id: "call_1",
  name: "weather",
  arguments: "{}",
};
const output = { type: "function_call_output", call_id: "call_1", output: "sunny" } as const;

const rawCalls: ToolCallRaw[] = [
  call,
  {
    type: "computer_call",
    id: "c",
    call_id: "c",
    action: { type: "wait" },
    pending_safety_checks: [],
    status: "completed",
  },
  { type: "file_search_call", id: "f", queries: ["q"], status: "completed" },
  { type: "web_search_call", id: "w", status: "completed", action: { type: "search", query: "q" } },
  { type: "mcp_call", id: "m", server_label: "s", name: "n", arguments: "{}" },
  {
    type: "code_interpreter_call",
    id: "i",
    code: "1",
    container_id: "c",
    outputs: null,
    status: "completed",
  },
  { type: "image_generation_call", id: "g", result: null, status: "completed" },
  {
    type: "local_shell_call",
    id: "l",
    call_id: "l",
    action: { type: "exec", command: [], env: {} },
    status: "completed",
  },
];

const rawOutputs: ToolOutputRaw[] = [
  output,
  {
    type: "computer_call_output",
    call_id: "c",
    output: { type: "computer_screenshot", image_url: "https://x/y.png" },
  },
  { type: "local_shell_call_output", id: "l", output: "done" },
];

const items: { [T in RunItem["type"]]: RunItemOf<T> } = {
  message_output_item: messageItem(text("hi")),
  handoff_call_item: { type: "handoff_call_item", agent: "main", rawItem: call },
  handoff_output_item: {
    type: "handoff_output_item",
    agent: "main",
    rawItem: output,
    sourceAgent: "main",
    targetAgent: "writer",
  },
  tool_call_item: { type: "tool_call_item", agent: "main", rawItem: call },
  tool_call_output_item: {
    type: "tool_call_output_item",
    agent: "main",
    rawItem: output,
    output: { t: 25 },
  },
  reasoning_item: {
    type: "reasoning_item",
    agent: "main",
    rawItem: { type: "reasoning", id: "rs_1", summary: [] },
  },
  mcp_list_tools_item: {
    type: "mcp_list_tools_item",
    agent: "main",
    rawItem: {
      type: "mcp_list_tools",
      id: "l",
      server_label: "s",
      tools: [{ name: "n", input_schema: {} }],
    },
  },
  mcp_approval_request_item: {
    type: "mcp_approval_request_item",
    agent: "main",
    rawItem: {
      type: "mcp_approval_request",
      id: "a",
      server_label: "s",
      name: "n",
      arguments: "{}",
    },
  },
  mcp_approval_response_item: {
    type: "mcp_approval_response_item",
    agent: "main",
    rawItem: { type: "mcp_approval_response", approval_request_id: "a", approve: true },
  },
};
const all: RunItem[] = Object.values(items);

describe("the items of a run", () => {
  it("RI-1: have nine types, and each is read by its own schema", () => {
    expect(Object.keys(itemSchemas)).toEqual([
      "message_output_item",
      "handoff_call_item",
      "handoff_output_item",
      "tool_call_item",
      "tool_call_output_item",
      "reasoning_item",
      "mcp_list_tools_item",
      "mcp_approval_request_item",
      "mcp_approval_response_item",
    ]);
    for (const item of all) expect(parseRunItem(item)).toEqual({ ok: true, value: item });
  });

  it("RI-2: are distinguished by their type at compile time", () => {
    const narrowed = (item: RunItem) => {
      if (item.type === "reasoning_item") {
        expectTypeOf(item.rawItem.type).toEqualTypeOf<"reasoning">();
      }
      if (item.type === "handoff_output_item") {
        expectTypeOf(item.targetAgent).toEqualTypeOf<string>();
      }
      if (item.type === "tool_call_item") expectTypeOf(item.rawItem).toEqualTypeOf<ToolCallRaw>();
      return item.type === "handoff_call_item" ? item.rawItem.call_id : "";
    };
    expect(all.map(narrowed).join("")).toBe("call_1");
  });

  it("RI-3: hold all eight kinds of calls", () => {
    for (const rawItem of rawCalls) {
      expect(parseRunItem({ type: "tool_call_item", agent: "a", rawItem }).ok).toBe(true);
    }
    expect(
      parseRunItem({ type: "tool_call_item", agent: "a", rawItem: { type: "telepathy_call" } }).ok,
    ).toBe(false);
  });

  it("RI-4: hold all three kinds of outputs", () => {
    for (const rawItem of rawOutputs) {
      expect(
        parseRunItem({ type: "tool_call_output_item", agent: "a", rawItem, output: null }).ok,
      ).toBe(true);
    }
  });

  it("are refused with the name of what is wrong", () => {
    expect(parseRunItem({ type: "thought_item" })).toEqual({
      ok: false,
      error: 'there is no item of type "thought_item"',
    });
    expect(parseRunItem({ type: "toString" }).ok).toBe(false);
    expect(parseRunItem(null).ok).toBe(false);
    expect(parseRunItem({ ...items.reasoning_item, agent: undefined })).toMatchObject({
      error: /agent/,
    });
  });

  it("RI-28: survive JSON, and every helper says the same of the copy", () => {
    for (const item of all) {
      const copy = JSON.parse(JSON.stringify(item)) as RunItem; // of the same item
      expect(copy).toEqual(item);
      expect(parseRunItem(dumpRunItem(copy))).toEqual({ ok: true, value: item });
      expect(toInputItem(copy)).toEqual(toInputItem(item));
    }
    const copy = JSON.parse(
      JSON.stringify(items.message_output_item),
    ) as typeof items.message_output_item; // as above
    expect(extractLastContent(copy.rawItem)).toBe("hi");
    expect(textMessageOutput(copy)).toBe("hi");
  });

  it("RI-29: name agents, and a tool's value that is no JSON is stored in its string form", () => {
    const withObject = { ...items.tool_call_item, agent: { name: "main" } };
    expect(parseRunItem(withObject).ok).toBe(false);
    const loop: Record<string, unknown> = {};
    loop["loop"] = loop;
    const dumped = (value: unknown) =>
      (dumpRunItem({ ...items.tool_call_output_item, output: value }) as { output: unknown })
        .output;
    expect([loop, 5n, undefined, new Date(0), { t: 1 }].map(dumped)).toEqual([
      "[object Object]",
      "5",
      "undefined",
      "1970-01-01T00:00:00.000Z",
      { t: 1 },
    ]);
  });

  it("RI-30: are a hand-over for its calls, a tool call for any other", () => {
    const isHandoff = (name: string) => name.startsWith("transfer_to_");
    expect(runItemOf(call, "a", isHandoff)?.type).toBe("tool_call_item");
    expect(runItemOf({ ...call, name: "transfer_to_b" }, "a", isHandoff)?.type).toBe(
      "handoff_call_item",
    );
    for (const raw of rawCalls) {
      expect(runItemOf(raw, "a", () => false)?.type).toBe("tool_call_item");
    }
    expect(runItemOf(items.mcp_list_tools_item.rawItem, "a", () => false)?.type).toBe(
      "mcp_list_tools_item",
    );
    expect(runItemOf(items.mcp_approval_request_item.rawItem, "a", () => false)?.type).toBe(
      "mcp_approval_request_item",
    );
  });

  it("RI-11, RI-31: what a model has produced keeps its order and length, unknown types included, which make no item", () => {
    const unknown = { type: "compaction", id: "x" } as unknown as OutputItem; // of a later version
    const response = {
      output: [items.reasoning_item.rawItem, unknown, call],
      usage: noItemUsage,
      responseId: "resp_1",
    };
    expect(runItemOf(unknown, "a", () => false)).toBeUndefined();
    expect(toInputItems(response)).toEqual(response.output);
    expect(parseModelResponse(response)).toEqual({ ok: true, value: response });
  });

  it("RI-12: a response says its id, if only that there is none", () => {
    const response = { output: [], usage: noItemUsage };
    expect(parseModelResponse({ ...response, responseId: null }).ok).toBe(true);
    expect(parseModelResponse(response).ok).toBe(false);
  });
});

describe("an item as input", () => {
  it("RI-5: a message keeps its id, role, status, type and parts", () => {
    expect(toInputItem(messageItem(text("a"), refusal("no")))).toEqual(
      message(text("a"), refusal("no")),
    );
  });

  it("RI-6: leaves out absent members at every depth and keeps nulls", () => {
    const rawItem = {
      ...message(Object.assign(text("a"), { logprobs: undefined })),
      id: undefined,
      phase: null,
    };
    const item = { type: "message_output_item", agent: "a", rawItem } as unknown as RunItem; // with what others set
    const { id: _id, ...rest } = message(text("a"));
    expect(toInputItem(item)).toStrictEqual({ ...rest, phase: null });
  });

  it("RI-7: is a copy", () => {
    const item = messageItem(text("a"));
    const copy = toInputItem(item) as OutputMessage; // of a message
    copy.content.push(text("b"));
    copy.content.splice(0, 1);
    expect(item).toEqual(messageItem(text("a")));
  });

  it("RI-8: is refused when it is no plain object", () => {
    for (const rawItem of ["text", [call], null, new Date(0), 5]) {
      expect(() => toInputItem({ rawItem } as unknown as RunItem)).toThrow(AgentsError);
    }
    expect(() => toInputItem({ rawItem: null } as unknown as RunItem)).toThrow("null");
  });

  it("RI-9, RI-10: has neither the tool's own value nor agents", () => {
    expect(toInputItem(items.tool_call_output_item)).toEqual(output);
    expect(toInputItem(items.handoff_output_item)).toEqual(output);
  });

  it("RI-34: an approval refers to its request", () => {
    expect(toInputItem(items.mcp_approval_response_item)).toMatchObject({
      approval_request_id: "a",
    });
  });
});

describe("the helpers", () => {
  it("RI-13, RI-16: find no last content in other items and empty messages", () => {
    expect(extractLastContent(call)).toBe("");
    expect(extractLastContent(message())).toBe("");
  });

  it("RI-14, RI-15: take the last content, text or refusal, and refuse any other", () => {
    expect(extractLastContent(message(text("a"), refusal("no")))).toBe("no");
    expect(extractLastContent(message(refusal("no"), text("a")))).toBe("a");
    expect(extractLastContent(message(odd, text("a")))).toBe("a");
    expect(() => extractLastContent(message(text("a"), odd))).toThrow(ModelBehaviorError);
    expect(() => extractLastContent(message(odd))).toThrow("hologram");
  });

  it("RI-17, RI-18: take the last text only where a message ends with it", () => {
    expect(extractLastText(message(text("a"), refusal("no")))).toBeNull();
    expect(extractLastText(message(refusal("no"), text("a")))).toBe("a");
    expect(extractLastText(message(text("")))).toBe("");
    expect(extractLastText(call)).toBeNull();
    expect(extractLastText(message())).toBeNull();
  });

  it("RI-19..21: make a list of their own of an input", () => {
    expect(inputToNewInputList("hi")).toEqual([{ content: "hi", role: "user" }]);
    expect(inputToNewInputList("")).toEqual([{ content: "", role: "user" }]);
    const list: InputItem[] = [message(text("a"))];
    const copy = inputToNewInputList(list);
    expect(copy).toEqual(list);
    (copy[0] as OutputMessage).content.pop();
    copy.push(call);
    expect(list).toEqual([message(text("a"))]);
    expect(inputToNewInputList([])).toEqual([]);
    expect(() => inputToNewInputList([{ act: () => 1 }] as unknown as InputItem[])).toThrow();
  });

  it("RI-22..24: join texts without separator, and skip everything else", () => {
    expect(textMessageOutput(messageItem(text("a"), refusal("no"), text("b"), odd))).toBe("ab");
    expect(textMessageOutput(messageItem(refusal("no")))).toBe("");
    expect(
      textMessageOutputs([messageItem(text("a")), items.tool_call_item, messageItem(text("b"))]),
    ).toBe("ab");
    expect(textMessageOutputs([])).toBe("");
  });

  it("RI-25, RI-26: answer a call by its call_id, with text or JSON", () => {
    expect(toolCallOutputItem(call, "sunny")).toStrictEqual({
      call_id: "call_1",
      output: "sunny",
      type: "function_call_output",
    });
    expect(toolCallOutputItem(call, { t: 25 }).output).toBe('{"t":25}');
    expect(toolCallOutputItem(call, undefined).output).toBe("");
  });

  it("RI-27: take a null text for none", () => {
    const empty = { ...text(""), text: null } as unknown as OutputPart; // as some gateways send it
    expect(parseRunItem(messageItem(empty)).ok).toBe(true);
    expect([
      extractLastContent(message(empty)),
      extractLastText(message(empty)),
      textMessageOutput(messageItem(empty)),
    ]).toEqual(["", "", ""]);
  });

  it("RI-32: a model's misbehaviour is an error of items", () => {
    expect(new ModelBehaviorError("x")).toBeInstanceOf(AgentsError);
    expect(new ModelBehaviorError("x").name).toBe("ModelBehaviorError");
  });

  it("add up usage", () => {
    const one = {
      requests: 1,
      input_tokens: 2,
      output_tokens: 3,
      total_tokens: 5,
      cache_read_tokens: 6,
      cache_write_tokens: 7,
    };
    expect(addItemUsage(one, one)).toEqual({
      requests: 2,
      input_tokens: 4,
      output_tokens: 6,
      total_tokens: 10,
      cache_read_tokens: 12,
      cache_write_tokens: 14,
    });
  });
});
