import {
  createClient,
  RunError,
  RequestError,
  textMessageOutputs,
  type RunEvent,
  type RunItem,
  type RunMessage,
} from "@larkline/sdk";
import { parseMessage } from "@larkline/protocol/views/chat-messages";
import { problemsOf } from "@larkline/protocol/views/conformance.fixture";
import { parseRunEvent } from "@larkline/protocol/views/engine-events";
import type { SessionItems, SessionReport } from "@larkline/protocol/views/run-api";
import { parseRunItem } from "@larkline/protocol/views/run-items";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { obedientModel } from "../system/model-script.ts";
import { noteSeen } from "../system/seen.ts";
import { system } from "./http-deployment.ts";

function clientOf(replica: 0 | 1 = 0) {
  return createClient({ url: system.ingresses[replica]?.url ?? "" });
}

async function all<T>(source: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const one of source) list.push(one);
  return list;
}

const question = 'say\ncall hold_once {"key":"typed"}';

describe("a run that is read by the SDK", () => {
  it("AT-2: has the same text, calls and order in its views, each valid, for every reader", async () => {
    const run = clientOf().run(question, { session: "views" });
    const [stream, items] = [run.stream(), run.items()];
    const reading = Promise.all([
      all(stream),
      all(run.stream()),
      all(items),
      run.result(),
      all(run.messages()),
    ]);
    await system.release("typed");
    const [events, again, newItems, result, messages] = await reading;
    noteSeen(
      "event",
      events.map(({ type }) => type),
    );
    noteSeen(
      "item",
      newItems.map(({ type }) => type),
    );
    expect(again).toEqual(events);
    for (const { seq: _seq, runId: _runId, atMs: _atMs, agent: _agent, ...event } of events) {
      const whole = event.type === "done" ? { ...event, agent: "default" } : event;
      expect(parseRunEvent(whole)).toMatchObject({ ok: true });
    }
    for (const item of newItems) expect(parseRunItem(item)).toMatchObject({ ok: true });
    expect(events.at(-2)).toMatchObject({
      type: "done",
      reason: "",
      final: "[say] ok:released",
      agent: "default",
    });
    expect(newItems.map(({ type }) => type)).toEqual([
      "tool_call_item",
      "tool_call_output_item",
      "message_output_item",
    ]);
    expect(textMessageOutputs(newItems)).toBe("[say] ok:released");
    expect(result).toMatchObject({
      finalOutput: "[say] ok:released",
      lastAgent: "default",
      reason: "",
      newItems,
    });
    for (const message of messages) {
      expect(problemsOf(message.type, message)).toEqual([]);
      expect(parseMessage(message)).toEqual({ ok: true, value: message });
    }
    const whole = messages.filter(({ type }) => type !== "ModelClientStreamingChunkEvent");
    expect(whole).toMatchObject([
      { type: "TextMessage", source: "user", content: question },
      { type: "ToolCallRequestEvent", source: "default", content: [{ name: "hold_once" }] },
      {
        type: "ToolCallExecutionEvent",
        content: [{ name: "hold_once", content: "released", is_error: false }],
      },
      { type: "TextMessage", source: "default", content: "[say] ok:released" },
    ]);
    // CM-41
    const prompts = messages.reduce(
      (sum, { models_usage }) => sum + (models_usage?.prompt_tokens ?? 0),
      0,
    );
    expect(prompts).toBe(
      result.usage.input_tokens + result.usage.cache_read_tokens + result.usage.cache_write_tokens,
    );
    // RI-38: usage is the sum of the ends of steps.
    const ends = events.filter(
      (event): event is RunEvent & { type: "turn_end" } => event.type === "turn_end",
    );
    expect(result.usage.output_tokens).toBe(ends.reduce((sum, end) => sum + end.outputTokens, 0));
    expect(result.usage.requests).toBe(2);
    expect(result.responseIds).toHaveLength(2);
    // EE-53, and the places of events: they grow, and so do the times.
    const places = events.map(({ seq }) => seq);
    expect(places).toEqual(places.toSorted((a, b) => a - b));
    expect(new Set(places).size).toBe(places.length);
    expect(events.every(({ atMs }) => atMs > 1_700_000_000_000)).toBe(true);
    expect(await all(clientOf(1).attach(result.runId).stream())).toEqual(events); // from another replica
    expect(await all<RunItem>(clientOf(1).attach(result.runId).items())).toEqual(newItems); // RI-35
    expect(await all<RunMessage>(clientOf(1).attach(result.runId).messages())).toEqual(messages); // CM-39
  });

  it("EE-55: ends with the totals of its session, for those who follow it and for those who come back after its end", async () => {
    const url = system.ingresses[1]?.url ?? "";
    await clientOf().run("one", { session: "totals" }).result();
    const run = clientOf().run("two", { session: "totals" });
    const events = await all(run.stream());
    const response = await fetch(`${url}/v1/sessions/totals`);
    const told = (await response.json()) as SessionReport; // our own server wrote it
    expect(events.slice(-2)).toMatchObject([
      { type: "done" },
      {
        type: "session_info",
        sessionId: "totals",
        title: told.title,
        turnCount: told.turn_count,
        inputTokens: told.input_tokens,
        outputTokens: told.output_tokens,
        costUsd: told.cost_usd,
      },
    ]);
    expect(told.turn_count).toBe(2);
    const [end, last] = events.slice(-2).map(({ seq }) => seq);
    const followed = async (after: number | undefined) => {
      return await fetch(`${url}/v1/runs/${await run.id()}/events?after=${after}`);
    };
    const rest = await (await followed(end)).text();
    expect(rest.match(/^(?:id|event): .*$/gm)).toEqual([
      `id: ${last}`,
      `id: ${last}`,
      "event: end",
    ]);
    expect((await followed(last)).status).toBe(204);
  });

  it("RI-39: has the items of a hand-over, each with its agent, and so has the session", async () => {
    const run = clientOf().run('write\ncall transfer_to_writer {"reason":"it is long"}', {
      agent: "desk",
      session: "handed",
    });
    const { finalOutput, lastAgent, newItems } = await run.result();
    expect([finalOutput, lastAgent]).toEqual([
      expect.stringContaining("Transferred to writer."),
      "writer",
    ]);
    expect(newItems.map(({ type, agent }) => [type, agent])).toEqual([
      ["handoff_call_item", "desk"],
      ["handoff_output_item", "desk"],
      ["message_output_item", "writer"],
    ]);
    expect(newItems[1]).toMatchObject({ sourceAgent: "desk", targetAgent: "writer" });
    const response = await fetch(`${system.ingresses[0]?.url}/v1/sessions/handed/items`);
    const { items } = (await response.json()) as SessionItems; // our own server wrote it
    expect(items.map((item) => ("agent" in item ? item.agent : item.role))).toEqual([
      "user",
      "desk",
      "desk",
      "writer",
    ]);
    noteSeen(
      "item",
      newItems.map(({ type }) => type),
    );
  });

  it("AT-5: continues elsewhere with its conversation, and a conversation of its own takes no other", async () => {
    const client = clientOf();
    const first = await client.run("one", { session: "first" }).result();
    const next = [...first.toInputList(), { role: "user" as const, content: "two" }];
    await client.run(next, { session: "second" }).result();
    const messages = JSON.stringify(system.model.requests.at(-1)?.body);
    expect(messages).toContain("one");
    expect(messages).toContain(String(first.finalOutput));
    expect(messages).toContain("two");
    await expect(client.run(next, { session: "first" }).result()).rejects.toThrow(
      /has a conversation already/,
    );
  });

  it("AT-4: a bad request names its field and stores nothing", async () => {
    const client = clientOf();
    const refusals: [Parameters<typeof client.run>, RegExp][] = [
      [["a", { agent: "nobody", session: "bad" }], /agent: there is no agent 'nobody'/],
      [["a", { session: "no spaces" }], /session_id/],
      [[[], { session: "bad" }], /input must end with a message/],
      [[[{ role: "robot", content: "a" } as never], { session: "bad" }], /input\[0\]/],
      [["   ", { session: "bad" }], /input/],
    ];
    for (const [asked, message] of refusals) {
      const error = await client
        .run(...asked)
        .result()
        .catch((cause: unknown) => cause);
      expect(error).toBeInstanceOf(RequestError);
      expect(error).toMatchObject({
        status: 400,
        message: expect.stringMatching(message) as string,
      });
    }
    const { url = "" } = system.ingresses[0] ?? {};
    const call = { type: "function_call", call_id: "c1", name: "echo", arguments: "{}" };
    const form = (schema: object) => ({
      output: { name: "Form", schema: { type: "object", ...schema } },
    });
    const bad: [object, RegExp][] = [
      [{ input: [call, { role: "user", content: "a" }] }, /input\[/],
      [{ input: 5 }, /input/],
      [{ temperature: 1 }, /'temperature'/],
      [{ model: { name: "other" } }, /model .*'name'/],
      [{ model: { effort: "all" } }, /model\.effort/],
      [{ model: { temperature: "3" } }, /model\.temperature/],
      [{ model: { maxOutputTokens: 0 } }, /model\.maxOutputTokens/],
      [form({ properties: { a: { type: "text" } } }), /output\.schema/],
      [form({ type: "array" }), /output\.schema/],
      [form({ description: "x".repeat(33_000) }), /output\.schema is too large/],
      [{ output: { name: "no spaces", schema: { type: "object" } } }, /output\.name/],
      [{ metadata: { a: 1 } }, /metadata\.a/],
      [{ metadata: { a: "x".repeat(513) } }, /metadata\.a/],
      [
        { metadata: Object.fromEntries(Array.from({ length: 17 }, (_, at) => [`k${at}`, ""])) },
        /metadata/,
      ],
      [{ on_disconnect: "explode" }, /on_disconnect/],
      [{ background: "yes" }, /background/],
    ];
    for (const [fields, message] of bad) {
      const body = JSON.stringify({ input: "a", session_id: "bad", ...fields });
      const refused = await fetch(`${url}/v1/runs`, { method: "POST", body });
      expect([refused.status, await refused.text()]).toEqual([400, expect.stringMatching(message)]);
    }
    const long = await fetch(`${url}/v1/runs`, {
      method: "POST",
      body: JSON.stringify({ input: "a".repeat(1_100_000) }),
    });
    expect(long.status).toBe(413);
    expect((await fetch(`${url}/v1/runs/api.views-1/events?view=films`)).status).toBe(400);
    expect((await fetch(`${url}/v1/runs/api.views-1/events?nested=yes`)).status).toBe(400);
  });

  it("EE-12: a session and a run that are not known are session_not_found", async () => {
    for (const path of ["sessions/bad", "runs/api.bad-1", "runs/api.bad-1/events"]) {
      const refused = await fetch(`${system.ingresses[0]?.url ?? ""}/v1/${path}`);
      expect([refused.status, await refused.json()]).toMatchObject([
        404,
        { code: "session_not_found" },
      ]);
    }
  });

  it("EE-44: what a tool says while it runs is progress and messages of kind log, with its id", async () => {
    const run = clientOf().run('talk\ncall hold_once {"key":"talks"}', { session: "talks" });
    await system.release("talks");
    const events = await all(run.stream());
    const [use] = events.flatMap((event) => (event.type === "tool_use" ? [event] : []));
    const said = events.filter(({ type }) => type === "tool_progress" || type === "inbox_message");
    expect(said).toContainEqual(
      expect.objectContaining({ type: "tool_progress", id: use?.id, detail: "waiting" }),
    );
    const data = expect.stringContaining("holding") as string;
    expect(said).toContainEqual(
      expect.objectContaining({
        type: "inbox_message",
        messageType: "log",
        toolUseId: use?.id,
        data,
      }),
    );
  });

  it("a person's image is a MultiModalMessage, and the model sees it", async () => {
    const image =
      "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    const content = [
      { type: "input_text" as const, text: "look" },
      { type: "input_image" as const, image_url: `data:image/png;base64,${image}` },
    ];
    const messages = await all(
      clientOf()
        .run([{ role: "user", content }], { session: "pictures" })
        .messages(),
    );
    noteSeen(
      "message",
      messages.map(({ type }) => type),
    );
    expect(messages[0]).toMatchObject({
      type: "MultiModalMessage",
      source: "user",
      content: ["look", { data: image }],
    });
    expect(JSON.stringify(system.model.requests.at(-1)?.body)).toContain(image);
  });

  it("AT-21, EE-22: obeys the options of a run, and answers in its form", async () => {
    system.model.setScript(() => ({ text: ['{"note":', '"good"}'] }));
    try {
      const schema = {
        type: "object",
        properties: { note: { type: "string" } },
        required: ["note"],
      };
      const run = clientOf().run("note", {
        model: { temperature: 0.25, maxOutputTokens: 77 },
        output: { name: "Note", schema, format: "{note}!" },
        metadata: { ticket: "42" },
      });
      const [result, messages] = await Promise.all([run.result(), all(run.messages())]);
      expect(result).toMatchObject({ finalOutput: { note: "good" }, reason: "" });
      expect(system.model.requests.at(-1)?.body).toMatchObject({
        max_tokens: 77,
        temperature: 0.25,
      });
      // The vendor judges sampling values; what it refuses is left out.
      await clientOf()
        .run("note", { model: { temperature: 3 } })
        .result();
      const sent = system.model.requests
        .slice(-2)
        .map(({ body }) => (body as { temperature?: number }).temperature);
      expect(sent).toEqual([3, undefined]);
      expect(await run.report()).toMatchObject({
        output: { note: "good" },
        final_output: '{"note":"good"}',
        metadata: { ticket: "42" },
        children: [],
      });
      expect(messages.at(-1)).toMatchObject({
        type: "StructuredMessage[Note]",
        content: { note: "good" },
      });
    } finally {
      system.model.setScript(obedientModel);
    }
  });

  it("EE-55: a session tells its totals and its conversation, page by page, as the input of another one", async () => {
    const client = clientOf();
    const first = await client.run("hello", { session: "talk" }).result();
    const second = client.run(question.replace("typed", "talk"), { session: "talk" });
    await system.release("talk");
    const { usage, toInputList } = await second.result();
    const { url = "" } = system.ingresses[1] ?? {};
    const get = async <T>(path: string) =>
      (await (await fetch(`${url}/v1/sessions/talk${path}`)).json()) as T;
    expect(await get("")).toMatchObject({
      session_id: "talk",
      state: "idle",
      messages: 6,
      waiting: 0,
      title: "hello",
      turn_count: 3,
      input_tokens: usage.input_tokens + first.usage.input_tokens,
      output_tokens: usage.output_tokens + first.usage.output_tokens,
      interruptions: [],
    });
    const items: unknown[] = [];
    for (let after: string | null = "0"; after !== null;) {
      const page: SessionItems = await get<SessionItems>(`/items?limit=4&after=${after}`);
      items.push(...page.items);
      after = page.next;
    }
    expect(items).toMatchObject([
      { role: "user", content: "hello" },
      { type: "message_output_item", rawItem: { content: [{ text: first.finalOutput }] } },
      { role: "user" },
      { type: "tool_call_item", rawItem: { name: "hold_once" } },
      { type: "tool_call_output_item", rawItem: { output: "released" } },
      { type: "message_output_item", rawItem: { content: [{ text: "[say] ok:released" }] } },
    ]);
    // What a program received and what the server keeps is the same conversation.
    const texts = (list: unknown[]) =>
      list.map((item) => /"(?:text|output|content)":"([^"]*)"/.exec(JSON.stringify(item))?.[1]);
    expect(texts(items.slice(2))).toEqual(texts(toInputList()));
    for (const path of ["/items?limit=0", "/items?limit=1000", "/items?after=x"]) {
      expect((await fetch(`${url}/v1/sessions/talk${path}`)).status).toBe(400);
    }
    expect((await fetch(`${url}/v1/sessions/nothing/items`)).status).toBe(404);
  });

  it("a repeated request is the same run, and a report and a wait tell of its end", async () => {
    const { url = "" } = system.ingresses[0] ?? {};
    const body = JSON.stringify({ input: "once", session_id: "again", message_id: "m1" });
    const post = async (headers: Record<string, string> = {}) =>
      await fetch(`${url}/v1/runs`, { method: "POST", body, headers });
    const first = await post();
    expect(first.status).toBe(202);
    const { run_id: runId } = (await first.json()) as { run_id: string };
    const waited = await post({ prefer: "wait=60" });
    expect([waited.status, await waited.json()]).toEqual([
      200,
      expect.objectContaining({
        run_id: runId,
        state: "done",
        final_output: expect.any(String),
        session_id: "again",
      }),
    ]);
    const followed = await post({ accept: "text/event-stream" });
    expect(followed.headers.get("x-run-id")).toBe(runId);
    expect(await followed.text()).toContain("event: end");
    const ended = await fetch(`${url}/v1/runs/${runId}/cancel`, { method: "POST" });
    expect(ended.status).toBe(409);
  });

  it("AT-3: is seen exactly once by a reader who is cut every 200 ms, over a kill -9 of its ingress", async () => {
    const victim = await system.start("ingress");
    const pieces = Array.from({ length: 60 }, (_, at) => `${at} `);
    const cutOften = Promise.withResolvers<void>();
    // The last pieces come when it was cut often, however slow the machine is.
    const waits = { afterFrames: pieces.length - 2, until: cutOften.promise };
    system.model.setScript(() => ({ text: pieces, delayMs: 50, waits }));
    let isDead = false;
    let cuts = 0;
    const cutFetch: typeof fetch = async (input, init = {}) => {
      const url = isDead
        ? String(input).replace(victim.url, system.ingresses[1]?.url ?? "")
        : String(input);
      if (!url.includes("/events")) return await fetch(url, init);
      cuts += 1;
      if (cuts > 6) cutOften.resolve();
      const signal = AbortSignal.any([
        AbortSignal.timeout(200),
        ...(init.signal ? [init.signal] : []),
      ]);
      return await fetch(url, { ...init, signal });
    };
    try {
      const run = createClient({ url: victim.url, fetch: cutFetch }).run("count", {
        session: "cut",
      });
      const seen: RunEvent[] = [];
      for await (const event of run.stream()) {
        seen.push(event);
        if (seen.length === 5) {
          await victim.kill();
          isDead = true;
        }
      }
      expect(cuts).toBeGreaterThan(5);
      expect(seen).toEqual(
        await all(
          clientOf(0)
            .attach(await run.id())
            .stream(),
        ),
      );
      // What came before a restart is void: a worker that lost its turn has a successor, which asks the model again.
      const text = seen.reduce((said, event) => {
        if (event.type === "step_restarted") return "";
        return event.type === "text_delta" ? said + event.text : said;
      }, "");
      expect(text).toBe(pieces.join(""));
      expect(seen.at(-2)).toMatchObject({ type: "done", final: pieces.join("") });
    } finally {
      system.model.setScript(obedientModel);
    }
  });

  it("the examples of docs/api.md run as they stand", async () => {
    const page = await readFile(new URL("../../docs/api.md", import.meta.url), "utf8");
    const examples = [...page.matchAll(/```sh\n([^]*?)```/g)].map(([, code = ""]) => code);
    expect(examples).toHaveLength(2);
    const { url = "" } = system.ingresses[0] ?? {};
    const env = { ...process.env, LARKLINE_URL: url, API_TOKEN: "none" };
    const outputs: string[] = [];
    for (const code of examples) {
      outputs.push(
        (await promisify(execFile)("sh", ["-c", code], { env, timeout: 60_000 })).stdout,
      );
    }
    const said = "[What time is it in Oslo?]";
    expect(JSON.parse(outputs[0] ?? "")).toMatchObject({
      state: "done",
      final_output: said,
      session_id: "oslo",
    });
    expect(outputs[1]).toContain(`"content":"${said}"`);
    expect(outputs[1]).toContain(`"text":"${said}"`);
  });

  it("is cancelled when its last reader leaves early, and not when it is detached or awaited", async () => {
    const client = clientOf();
    const left = client.run('wait\ncall hold_once {"key":"left"}', { session: "left" });
    for await (const { type } of left.stream()) if (type === "tool_use") break;
    await expect
      .poll(async () => (await left.report()).state, { timeout: 60_000 })
      .toBe("cancelled");
    const detached = client.run('wait\ncall hold_once {"key":"detached"}', {
      session: "detached",
      detach: true,
    });
    for await (const { type } of detached.stream()) if (type === "tool_use") break;
    await system.release("detached");
    expect(await detached.result()).toMatchObject({
      finalOutput: "[wait] ok:released",
      reason: "",
    });
  });

  it("ends with an error that the result throws and the stream has as its end", async () => {
    system.model.setScript(() => ({ fault: { kind: "status", status: 401 } }));
    try {
      const run = clientOf().run("fail", { session: "fails" });
      const failed = await run.result().catch((cause: unknown) => cause);
      expect(failed).toBeInstanceOf(RunError);
      expect(failed).toMatchObject({ code: "api_auth_error", retryable: false });
      expect((await all(run.stream())).at(-2)).toMatchObject({
        type: "error",
        code: "api_auth_error",
      });
    } finally {
      system.model.setScript(obedientModel);
    }
  });
});
