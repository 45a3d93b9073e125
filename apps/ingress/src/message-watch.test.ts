import { traceparentOf } from "@larkline/protocol/trace";
import { adapterOf, telemetryFor, type Tags, type Telemetry } from "@larkline/process/telemetry";
import { afterEach, expect, it, vi } from "vitest";
import { startWorld, testApp } from "./feishu.fixture.ts";
import { postChat, startTestIngress } from "./ingress.fixture.ts";

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

/** What observers get about messages, in order. */
function listening(): {
  telemetry: Telemetry;
  heard: [string, Tags][];
  of: (message: string) => string[];
} {
  const heard: [string, Tags][] = [];
  const telemetry = telemetryFor([
    adapterOf({
      event: (name, data) => void heard.push([name, data]),
      error: () => undefined,
      spanStart: (name, tags) => {
        heard.push([`begin ${name}`, tags]);
        return JSON.stringify(tags["message"]);
      },
      spanEnd: (message, _error, tags) =>
        void heard.push(["end", { message: JSON.parse(message), ...tags }]),
    }),
  ]);
  const of = (message: string): string[] =>
    heard
      .filter(([name, tags]) => tags["message"] === message && !name.startsWith("begin card."))
      .map(([name, { reason, outcome }]) => [name, reason ?? outcome].filter(Boolean).join(" "));
  return { telemetry, heard, of };
}

it("tells of a message that is taken, one that is not for the bot, and one that is refused", async () => {
  const { telemetry, heard, of } = listening();
  const here = await startWorld({ telemetry, settings: { limits: { messageChars: 10 } } });
  closing.push(here.close);
  const accepted = await here.say("hello");
  expect(of(accepted)).toEqual([
    "begin message.receive",
    "message.received",
    "message.appended",
    "end accepted",
  ]);
  const traceparent = traceparentOf({ app: testApp.appId, id: accepted });
  const [, received] = heard.find(([name]) => name === "message.received") ?? [];
  expect(received).toEqual({
    traceparent,
    message: accepted,
    app: testApp.appId,
    chat: here.direct,
    person: here.ann,
    channel: "feishu",
  });
  expect(of(await here.say("not for you", { chatId: here.group }))).toContain(
    "message.refused not_mentioned",
  );
  const long = await here.say("far too many words");
  expect(of(long)).toContain("message.refused too_long");
  // The line that says so is delivered in the trace of its message.
  await vi.waitFor(
    () => {
      const sent = heard.filter(
        ([name, tags]) => name === "reply.sent" && tags["traceparent"] === traceOf(long),
      );
      expect(sent).toHaveLength(1);
    },
    { timeout: 60_000 },
  );
  expect(JSON.stringify(heard)).not.toContain("too many words");
});

it("tells of a press on the menu as of a message, also when it cannot be stored", async () => {
  const { telemetry, heard } = listening();
  const here = await startWorld({ telemetry, settings: { feishu: { menu: { hi: "hello" } } } });
  closing.push(here.close);
  here.ingress.trouble.append = true;
  const { reports } = here.platform.pressMenu(here.ann, testApp.appId, "hi");
  const outcomes = () =>
    heard.flatMap(([name, { outcome }]) =>
      name === "end" && outcome !== undefined ? [outcome] : [],
    );
  await vi.waitFor(() => expect(outcomes()).toContain("failed"), { timeout: 60_000 });
  here.ingress.trouble.append = false;
  await reports;
  expect(outcomes().at(-1)).toBe("accepted");
});

function traceOf(id: string): string {
  return traceparentOf({ app: testApp.appId, id });
}

it("continues with the trace of an HTTP client, where it is well-formed", async () => {
  const { telemetry, heard } = listening();
  const ingress = await startTestIngress({ telemetry, script: async () => undefined });
  closing.push(ingress.close);
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const traceIds: string[] = [];
  const post = async (session: string, header: string) => {
    const stream = await postChat(
      ingress,
      { message: "hi", session_id: session },
      { traceparent: header },
    );
    await stream.end();
    traceIds.push(stream.headers.get("x-trace-id") ?? "");
    return heard.find(([name, { chat }]) => name === "message.received" && chat === session)?.[1][
      "traceparent"
    ];
  };
  expect(await post("one", traceparent)).toBe(traceparent);
  expect(traceIds).toEqual(["0af7651916cd43dd8448eb211c80319c"]);
  for (const [at, bad] of ["nonsense", `00-${"0".repeat(32)}-b7ad6b7169203331-01`].entries()) {
    expect(await post(`bad-${at}`, bad)).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    expect(await post(`bad-${at}`, bad)).not.toContain("0".repeat(32));
  }
});
