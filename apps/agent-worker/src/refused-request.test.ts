import { modelFailure, messageStop, toolCallDelta, type ModelRequest } from "@larkline/model";
import type { InboundMessage } from "@larkline/protocol";
import { textOf } from "@larkline/protocol/content";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { expect, it } from "vitest";
import { append, inbound, newWorld, outboxOf, session, settle } from "./turn-world.fixture.ts";

// What a vendor refuses of a conversation, as people and the next request see it.

const refusal: ModelChunk = {
  ...modelFailure("api_bad_request", "The model vendor refused the request (status 400).", {
    vendor: { message: "Bad Request" },
  }),
  blames: "request",
};

/** A model that refuses requests with this word, calls `echo` for "tools", and notes what it is asked. */
function refusing(word: string) {
  const requests: ModelRequest[] = [];
  const backend = {
    async *stream(request: ModelRequest): AsyncIterable<ModelChunk> {
      requests.push(request);
      if (JSON.stringify(request.messages).includes(word)) return void (yield refusal);
      const last = request.messages.at(-1);
      if (last?.role === "user" && textOf(last).startsWith("tools")) {
        yield toolCallDelta(0, { id: "a", name: "echo", arguments: '{"n":1}' });
        return void (yield messageStop("tool_use"));
      }
      yield { type: "text_delta", text: "all is well" };
      yield messageStop("end_turn");
    },
  };
  return { backend, requests };
}

async function replies(words: readonly string[], word: string) {
  const world = newWorld();
  world.outcomeOf = () => ({ ok: true, result: "red roses" });
  const { backend, requests } = refusing(word);
  const told: string[] = [];
  for (const [index, text] of words.entries()) {
    const message: InboundMessage = inbound(`om_${index}`, text);
    await append(world, message);
    await settle(world, { backend });
    told.push((await outboxOf(world)).at(-1)?.text ?? "");
  }
  return {
    told,
    requests,
    history: await world.store.history(session),
    ran: [...world.ran.values()],
  };
}

it.each([
  [
    "tools please",
    "The model's vendor refused the request, so the answer was made without: results of tools.",
  ],
  ["tools 请看一下这个结果", "模型供应商拒绝了请求，因此回答时略去了：工具的结果。"],
])(
  "a result that the vendor refuses is left out, and the person who wrote %j reads it",
  async (text, note) => {
    const { told, requests, history, ran } = await replies([text, "and now?"], "red roses");
    expect(told).toEqual([`all is well\n\n${note}`, "all is well"]);
    expect(ran).toEqual([1]);
    // The call, the refused request, the one without the result, and one for the next message.
    expect(requests.length).toBe(4);
    expect(JSON.stringify(history)).toContain("red roses");
    expect(
      history.flatMap((message) => (message.role === "assistant" ? [message.leftOut] : [])),
    ).toEqual([undefined, [{ kinds: ["result"], messages: 2 }], undefined]);
  },
);

it.each([
  ["say tulip", "Sorry, the model's vendor refuses this message", "/new "],
  ["请说 tulip 这个词", "抱歉，模型供应商拒绝了这条消息", "/新对话"],
])(
  "a message that the vendor refuses is left out of the next request: %j",
  async (text, notice, command) => {
    const { told, requests } = await replies([text, "and now?"], "tulip");
    expect(told[0]).toContain(notice);
    expect(told[0]).toContain(command);
    expect(told[1]).toBe("all is well");
    expect(requests.length).toBe(4);
  },
);
