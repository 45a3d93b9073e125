import { describe, expect, it } from "vitest";
import { conversationItems, parseInput, userItemOf } from "./item-input.ts";

const user = { role: "user", content: "hello" };
const call = { type: "function_call", call_id: "c1", name: "weather", arguments: '{"a":1}' };
const output = { type: "function_call_output", call_id: "c1", output: "sunny" };

function problemOf(input: unknown): string {
  const parsed = parseInput(input);
  return parsed.ok ? "" : parsed.error;
}

describe("the input of a run", () => {
  it("is a text, or a conversation that ends with a message of a person", () => {
    expect(parseInput("hi")).toEqual({
      ok: true,
      value: { history: [], parts: [{ type: "text", text: "hi" }] },
    });
    const image = {
      type: "input_image",
      detail: "auto",
      image_url: "data:image/png;base64,iVBORw0=",
    };
    const last = { role: "user", content: [{ type: "input_text", text: "what is it?" }, image] };
    const own = {
      type: "reasoning",
      id: "rs_1",
      summary: [{ type: "summary_text", text: "hm" }],
      encrypted_content: "g",
    };
    const parsed = parseInput([
      user,
      own,
      { role: "assistant", content: "let me look" },
      call,
      output,
      last,
    ]);
    expect(parsed).toEqual({
      ok: true,
      value: {
        history: [
          { role: "user", content: [{ type: "text", text: "hello" }] },
          {
            role: "assistant",
            content: [
              {
                type: "thinking",
                text: "hm",
                providerMetadata: { vendor: "openai-responses", item: JSON.stringify(own) },
              },
              { type: "text", text: "let me look" },
              { type: "tool_use", id: "c1", name: "weather", arguments: { a: 1 } },
            ],
          },
          {
            role: "tool",
            content: [{ type: "tool_result", toolCallId: "c1", content: "sunny", isError: false }],
          },
        ],
        parts: [
          { type: "text", text: "what is it?" },
          {
            type: "image",
            source: { sourceType: "base64", mediaType: "image/png", data: "iVBORw0=" },
          },
        ],
      },
    });
  });

  it("RI-36: keeps what only its own vendor understands for that vendor, and leaves out approvals of ours", () => {
    const kept = [
      { type: "web_search_call", id: "ws", status: "completed" },
      { type: "mcp_approval_request", id: "mcpr_1", server_label: "s", name: "n", arguments: "{}" },
      { type: "mcp_approval_response", approval_request_id: "mcpr_1", approve: true },
      { type: "compaction", id: "cmp_1", encrypted_content: "g" },
    ];
    const ours = [
      { type: "mcp_list_tools", id: "mcpl_api.s-1_4", server_label: "s", tools: [] },
      { type: "mcp_approval_request", id: "p", server_label: "s", name: "n", arguments: "{}" },
      { type: "mcp_approval_response", approval_request_id: "p", approve: true },
    ];
    const parsed = parseInput([user, ...kept, ...ours, user]);
    if (!parsed.ok) throw new Error(parsed.error);
    expect(conversationItems(parsed.value.history, "s")).toEqual([user, ...kept]);
  });

  it("RI-36: keeps messages and calls as their vendor made them, and takes those with ids of ours for texts", () => {
    const part = { type: "output_text", text: "hi", annotations: [] };
    const said = {
      type: "message",
      id: "msg_1",
      role: "assistant",
      status: "completed",
      phase: "final_answer",
    };
    const first = { ...said, content: [part, { type: "refusal", refusal: "no" }] };
    const progress = { ...said, id: "msg_0", phase: "commentary", content: [part] };
    const called = { ...call, id: "fc_1", status: "completed" };
    const parsed = parseInput([progress, first, { ...called, id: "fc_api.s-1_7" }, output, user]);
    if (!parsed.ok) throw new Error(parsed.error);
    const [asked] = parsed.value.history;
    expect(asked?.content).toMatchObject([
      { type: "thinking", text: "hi" },
      { type: "text", text: "hino" },
      { id: "c1" },
    ]);
    expect(asked?.content[2]).not.toHaveProperty("providerMetadata");
    const again = parseInput([progress, first, called, output, user]);
    if (!again.ok) throw new Error(again.error);
    expect(conversationItems(again.value.history, "s")).toEqual([progress, first, called, output]);
  });

  it("RI-33: is refused with the item that is wrong, for instance a call without its output", () => {
    expect(problemOf([user, call, user])).toBe(
      "input[2]: the call of input[1] has no output before this",
    );
    expect(problemOf([user, output, user])).toBe(
      'input[1]: call_id "c1" is of no call that waits for an output',
    );
    expect(problemOf([call, output, output, user])).toContain("input[2]");
    expect(problemOf([call, output, call, output, user])).toBe(
      "input[2]: call_id must be that of this call alone",
    );
    expect(problemOf([{ ...call, arguments: "[1]" }, output, user])).toBe(
      "input[0]: arguments must be the text of a JSON object",
    );
    expect(problemOf([{ ...call, arguments: "{" }, output, user])).toContain("input[0]");
    expect(problemOf([{ ...call, name: 5 }, user])).toBe("input[0]: name must be string");
    expect(problemOf([{ role: "system", content: "obey" }, user])).toBe(
      'input[0]: role must be "user" or "assistant"',
    );
    expect(problemOf([{ type: "telepathy" }, user])).toBe(
      'input[0]: there is no item like this of type "telepathy"',
    );
    expect(problemOf([{ type: "item_reference", id: "msg_1" }, user])).toContain(
      "input[0]: there is no item like this",
    );
    expect(problemOf([{ type: "web_search_call" }, user])).toContain(
      "input[0]: there is no item like this",
    );
    expect(problemOf([{ role: "user", content: [] }])).toContain("input[0]: content");
    expect(
      problemOf([{ role: "user", content: [{ type: "input_image", image_url: "http://x/y" }] }]),
    ).toContain("input[0]");
    expect(problemOf(["hello"])).toBe("input[0]: an item must be an object");
  });

  it("has 1,000 pieces in an item at most", () => {
    const parts = (count: number) => [
      {
        role: "user",
        content: Array.from({ length: count }, () => ({ type: "input_text", text: "a" })),
      },
    ];
    expect(parseInput(parts(1_000))).toMatchObject({ ok: true });
    const refused = parseInput(parts(1_001));
    expect(refused).toMatchObject({ ok: false, error: expect.stringMatching(/input\[0\].*1000/) });
    const annotations = Array.from({ length: 1_001 }, () => ({ type: "url_citation" }));
    const cited = { role: "assistant", content: [{ type: "output_text", text: "a", annotations }] };
    expect(parseInput([user, cited, user])).toMatchObject({ ok: false });
  });

  it("must end with words of a person", () => {
    expect(problemOf([])).toBe("input must end with a message of the user");
    expect(problemOf([user, { role: "assistant", content: "hi" }])).toBe(
      "input must end with a message of the user",
    );
    expect(problemOf([user, call, output])).toBe("input must end with a message of the user");
    expect(problemOf(" ")).toBe("input must end with a message that says something");
    expect(problemOf(5)).toBe("input must be a string or a list of items");
  });
});

describe("a conversation as items", () => {
  it("has the vendor's own items, and ids that do not change", () => {
    const own = { type: "reasoning", id: "rs_1", summary: [] };
    const items = conversationItems(
      [
        { role: "user", content: [{ type: "text", text: "hello" }] },
        {
          role: "assistant",
          content: [
            {
              type: "thinking",
              text: "",
              providerMetadata: { vendor: "openai-responses", item: JSON.stringify(own) },
            },
            { type: "thinking", text: "hm" },
            { type: "text", text: "look" },
            { type: "tool_use", id: "c1", name: "weather", arguments: {} },
          ],
        },
        {
          role: "tool",
          content: [
            {
              type: "tool_result",
              toolCallId: "c1",
              content: [
                { type: "text", text: "sunny" },
                { type: "image", source: { sourceType: "url", url: "https://x/y.png" } },
              ],
              isError: false,
            },
          ],
        },
      ],
      "s",
    );
    expect(items).toEqual([
      { role: "user", content: "hello" },
      own,
      { type: "reasoning", id: "rs_s_1_1", summary: [{ type: "summary_text", text: "hm" }] },
      {
        type: "message",
        id: "msg_s_1_2",
        role: "assistant",
        status: "completed",
        content: [{ type: "output_text", text: "look", annotations: [] }],
      },
      {
        type: "function_call",
        id: "fc_s_1_3",
        call_id: "c1",
        name: "weather",
        arguments: "{}",
        status: "completed",
      },
      { type: "function_call_output", call_id: "c1", output: "sunny\n[image]" },
    ]);
  });

  it("names files and images that it cannot show", () => {
    expect(
      userItemOf([
        { type: "image", source: { sourceType: "blob", blobId: "blob_x", mediaType: "image/png" } },
        { type: "image", source: { sourceType: "url", url: "https://x/y.png" } },
        { type: "file", name: "a.pdf", mediaType: "application/pdf", bytes: 1, state: "ready" },
      ]).content,
    ).toEqual([
      { type: "input_text", text: "[image]" },
      { type: "input_image", detail: "auto", image_url: "https://x/y.png" },
      { type: "input_text", text: "[file: a.pdf]" },
    ]);
  });
});
