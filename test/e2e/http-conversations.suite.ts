import { SessionStore } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import type { NormalisedRequest, ScriptedReply } from "@larkline/testkit";
import type { StreamFrame } from "@larkline/protocol/views/stream-frame";
import { afterEach, describe, expect, it, vi } from "vitest";
import { chat, heldFrames, type ChatStream } from "../system/chat-stream.ts";
import { hangingAfter, obedientModel } from "../system/model-script.ts";
import { system } from "./http-deployment.ts";

afterEach(() => system.model.setScript(obedientModel));

let sessions = 0;
function newSession(): string {
  sessions += 1;
  return `s${sessions}`;
}

async function say(session: string, message: string): Promise<ChatStream> {
  return await chat(system.ingresses[0]?.url ?? "", session, message);
}

async function types(stream: ChatStream): Promise<string[]> {
  return heldFrames(await stream.end()).map(({ type }) => type);
}

/** What the model was asked for the message, its last step. */
function requestFor(text: string): NormalisedRequest | undefined {
  return system.model.requests.findLast(
    ({ messages }) =>
      messages.findLast((message) => message.role === "user" && message.text !== "")?.text === text,
  );
}

describe("a conversation over HTTP", () => {
  it("AL-49: without a Feishu app and without a chat the answer is streamed, nothing is sent and nothing fails", async () => {
    const frames = await (await say(newSession(), "hello")).end();
    expect(frames.at(-1)).toMatchObject({ type: "done", final: "[hello]" });
    expect(system.feishu.apiCalls).toEqual([]);
    for (const { output } of system.workers) {
      expect(output()).not.toMatch(/reply not sent|"level":"(?:error|fatal)"/);
    }
  });

  it("SA-2, SA-5, SA-14, SA-15: tools that succeed and fail are shown each with its own outcome, and the run continues", async () => {
    const message = 'try\ncall note_pure {"key":"a"}\ncall fail {}\ncall note_pure {"key":"b"}';
    const frames = await (await say(newSession(), message)).end();
    const ids = frames.flatMap((frame) => (frame.type === "tool_call" ? [frame.id] : []));
    expect(new Set(ids).size).toBe(3);
    const outcomes = new Map(
      frames.flatMap((frame) => {
        if (frame.type === "tool_result") return [[frame.id, frame.result]];
        return frame.type === "tool_error" ? [[frame.id, frame.error]] : [];
      }),
    );
    expect(ids.map((id) => outcomes.get(id))).toEqual([
      { key: "a" },
      "tool_execution_error: this tool always fails",
      { key: "b" },
    ]);
    const final = '[try] ok:{"key":"a"} failed:this tool always fails ok:{"key":"b"}';
    expect(frames.filter(({ type }) => type === "done" || type === "error")).toMatchObject([
      { type: "done", final },
    ]);
    expect(frames.at(-1)?.type).toBe("done");
  });

  it("AL-44: a message that comes while a call is open waits, and never stands between call and result", async () => {
    const session = newSession();
    const first = await say(session, 'first\ncall meet {"key":"gate","of":2}');
    await first.until((frames) => frames.some(({ type }) => type === "tool_call"));
    const second = await say(session, "second");
    await second.until((frames) => frames.length === 1);
    // The call ends when another session makes the same one.
    const other = await say(newSession(), 'other\ncall meet {"key":"gate","of":2}');
    await Promise.all([first.end(), second.end(), other.end()]);
    expect(first.frames().at(-1)).toMatchObject({ type: "done", final: "[first] ok:met" });
    expect(second.frames().at(-1)).toMatchObject({ type: "done", final: "[second]" });
    const asked = requestFor("second")?.messages ?? [];
    expect(asked.map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "tool",
      "assistant",
      "user",
    ]);
    expect(asked[2]?.results.map(({ id }) => id)).toEqual(asked[1]?.calls.map(({ id }) => id));
  });

  it("SA-30: a session remembers what was said in it, and nothing that was said in others", async () => {
    const names = ["alpha", "beta", "gamma"];
    const ids = names.map(newSession);
    for (const part of ["one", "two"]) {
      const streams = await Promise.all(
        names.map(async (name, at) => await say(ids[at] ?? "", `${name} ${part}`)),
      );
      await Promise.all(streams.map(async (stream) => await stream.end()));
    }
    for (const name of names) {
      const texts = requestFor(`${name} two`)?.messages.map(({ text }) => text);
      expect(texts).toEqual([`${name} one`, `[${name} one]`, `${name} two`]);
    }
  });

  it("AL-19, SA-19: a model that always asks for tools is asked 25 times, then the run ends in an error", async () => {
    let asked = 0;
    // Never the same call: that would be stopped earlier.
    system.model.setScript(() => ({
      calls: [{ name: "note_pure", arguments: { key: `again ${(asked += 1)}` } }],
    }));
    const before = system.model.requests.length;
    const seen = await types(await say(newSession(), "never ends"));
    // A step that is asked for again, as a worker's successor does, is asked with the same conversation.
    const steps = system.model.requests
      .slice(before)
      .map(({ messages }) => JSON.stringify(messages));
    expect(new Set(steps).size).toBe(25);
    expect(seen).toEqual([
      "user_message",
      ...Array.from({ length: 25 }, () => ["tool_call", "tool_result"]).flat(),
      "error",
    ]);
  });

  it("EE-3, SA-20: a model that refuses gives one error, and the session answers the next message", async () => {
    const session = newSession();
    system.model.setScript(() => ({
      fault: { kind: "status", status: 400, message: "no such thing" },
    }));
    expect(await types(await say(session, "broken"))).toEqual(["user_message", "error"]);
    system.model.setScript(obedientModel);
    expect((await (await say(session, "better")).end()).at(-1)).toMatchObject({
      type: "done",
      final: "[better]",
    });
  });

  it("SA-31, SA-32: fragments arrive before the vendor has ended, and leaving stops the model within a second when the request says so", async () => {
    system.model.setScript(() => ({
      text: ["first ", "second ", "third"],
      firstDelayMs: 1,
      fault: { kind: "hang", afterFrames: 3 },
    }));
    const url = system.ingresses[0]?.url ?? "";
    const stream = await chat(url, newSession(), { message: "slow", on_disconnect: "cancel" });
    await stream.until((frames) => heldFrames(frames).some(({ type }) => type === "assistant"));
    expect(heldFrames(stream.frames()).map(({ type }) => type)).toEqual([
      "user_message",
      "assistant",
    ]);
    const before = system.model.aborted;
    stream.leave();
    await vi.waitFor(() => expect(system.model.aborted).toBeGreaterThan(before), {
      timeout: 60_000,
      interval: 10,
    });
  });

  it.each([1, 2, 3, 5])(
    "SA-31: %d fragments arrive while the vendor has more to say",
    async (count) => {
      const pieces = ["one ", "two ", "three ", "four ", "five ", "six"];
      // Apart, so that each is published by itself.
      system.model.setScript(() => ({ ...hangingAfter(pieces, count), delayMs: 80 }));
      const stream = await chat(system.ingresses[0]?.url ?? "", newSession(), {
        message: "go",
        on_disconnect: "cancel",
      });
      await stream.until((frames) => textOf(frames) === pieces.slice(0, count).join(""));
      expect(stream.frames().some(({ type }) => type === "done" || type === "error")).toBe(false);
      stream.leave();
    },
  );

  const failing = { kind: "error_event", type: "invalid_request_error", message: "no" } as const;
  it.each<[string, ScriptedReply, "done" | "error", string]>([
    ["nothing at all", { text: "" }, "done", ""],
    ["one character", { text: ["字"] }, "done", "字"],
    [
      "characters cut in the middle",
      { text: ["\ud83d", "\udc4d a", "\u0000b"] },
      "done",
      "👍 a\u0000b",
    ],
    ["lines and quotes", { text: ['a\n\n"', "data: x\n\n", "\\"] }, "done", 'a\n\n"data: x\n\n\\'],
    ["the same words twice", { text: ["ja ", "ja ", "ja"] }, "done", "ja ja ja"],
    [
      "more than it may",
      { text: ["half ", "of it"], stopReason: "max_tokens" },
      "error",
      "half of it",
    ],
    ["that it will not", { text: ["I "], stopReason: "refusal" }, "error", "I "],
    [
      "half of it, then fails",
      { text: ["I ", "am"], fault: { ...failing, afterFrames: 4 } },
      "error",
      "I am",
    ],
    ["nothing, and fails", { text: ["I"], fault: { ...failing, afterFrames: 0 } }, "error", ""],
  ])(
    "SA-4: when the model says %s, the fragments are what it said and one end follows",
    async (...given) => {
      const [, reply, end, text] = given;
      system.model.setScript(() => reply);
      const all = await (await say(newSession(), "hello")).end();
      expect(all.filter(({ type }) => type === "restart")).toEqual([]);
      const frames = heldFrames(all);
      const fragments = frames.slice(1, -1);
      expect(frames[0]).toMatchObject({ type: "user_message", content: "hello" });
      expect(fragments.map(({ type }) => type)).toEqual(fragments.map(() => "assistant"));
      expect(fragments.every((frame) => frame.type !== "assistant" || frame.content !== "")).toBe(
        true,
      );
      expect(textOf(frames)).toBe(text);
      expect(frames.at(-1)?.type).toBe(end);
      if (end === "done") expect(frames.at(-1)).toMatchObject({ final: text });
    },
  );

  it("EE-12, SA-16: the stored tool message has each call's own result or error, in the order of the calls", async () => {
    const session = newSession();
    const calls = [
      'note_pure {"key":"a"}',
      "fail {}",
      'note_pure {"key":"b"}',
      "nowhere {}",
      "note_pure not json",
    ];
    await (await say(session, ["try", ...calls.map((call) => `call ${call}`)].join("\n"))).end();
    const redis = connectRedis(system.redis.url);
    const history = await new SessionStore({ redis, namespace: "larkline" }).history(
      `api.${session}`,
    );
    await closeRedis(redis);
    expect(history.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant"]);
    const asked =
      history[1]?.content.flatMap((part) => (part.type === "tool_use" ? [part.id] : [])) ?? [];
    expect(new Set(asked).size).toBe(5);
    const result = (at: number, text: unknown, isError: boolean) => ({
      type: "tool_result",
      toolCallId: asked[at],
      content: text,
      isError,
    });
    expect(history[2]?.content).toEqual([
      result(0, '{"key":"a"}', false),
      result(1, "tool_execution_error: this tool always fails", true),
      result(2, '{"key":"b"}', false),
      result(3, expect.stringMatching(/^tool_not_found: .*nowhere/), true),
      result(4, expect.stringMatching(/^tool_execution_error: .*JSON/), true),
    ]);
    // And so the model reads it.
    const told = requestFor(
      ["try", ...calls.map((call) => `call ${call}`)].join("\n"),
    )?.messages.at(-1)?.results;
    expect(told?.map(({ id, isError }) => [id, isError])).toEqual(
      asked.map((id, at) => [id, [1, 3, 4].includes(at)]),
    );
  });
});

function textOf(frames: readonly StreamFrame[]): string {
  return heldFrames(frames)
    .map((frame) => (frame.type === "assistant" ? frame.content : ""))
    .join("");
}
