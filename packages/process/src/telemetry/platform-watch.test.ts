import { expect, it } from "vitest";
import { adapterOf } from "./observers.ts";
import { watchPlatform } from "./telemetry.ts";
import { telemetryFor, type Tags } from "./telemetry.ts";

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

function watching() {
  const told: [string, Tags][] = [];
  const note = (name: string, tags: Tags): void => void told.push([name, tags]);
  const watch = watchPlatform(
    telemetryFor([
      adapterOf({
        event: note,
        error: () => undefined,
        metric: (name, value, tags) =>
          note(`${name} ${name === "card.operations" ? value : ""}`.trim(), tags),
        spanStart: (name, tags) => {
          note(`begin ${name}`, tags);
          return name;
        },
        spanEnd: (name, error, tags) =>
          note(`end ${name}${error === undefined ? "" : " failed"}`, tags ?? {}),
      }),
    ]),
  );
  return { told, watch };
}

it("tells of calls that write cards and messages, counts them by result, and of no others", () => {
  const { told, watch } = watching();
  watch.calls.began({ api: "im.chat.get", traceparent })();
  expect(told).toEqual([]);
  watch.calls.began({ api: "cardkit.card.create", traceparent })();
  watch.calls.began({ api: "im.message.reply", traceparent: undefined })({
    kind: "rate_limit",
    code: 7,
    heldBack: false,
  });
  expect(told).toEqual([
    ["begin card.write", { traceparent, operation: "cardkit.card.create" }],
    ["card.operations 1", { operation: "cardkit.card.create", result: "ok" }],
    ["end card.write", { result: "ok" }],
    ["begin card.write", { operation: "im.message.reply" }],
    ["card.operations 1", { operation: "im.message.reply", result: "rate_limit" }],
    ["end card.write failed", { result: "rate_limit" }],
  ]);
});

it("tells of waits that a person may notice", () => {
  const { told, watch } = watching();
  watch.calls.waited({ api: "im.message.reply", traceparent }, 3, true);
  watch.calls.waited({ api: "im.message.reply", traceparent }, 900, false);
  expect(told.map(([name]) => name)).toEqual(["limiter.wait_seconds", "limiter.wait_seconds"]);
  watch.calls.waited({ api: "im.message.reply", traceparent }, 900.4, true);
  expect(told.at(-1)).toEqual([
    "limiter.waited",
    { traceparent, api: "im.message.reply", ms: 900 },
  ]);
});

it("tells of each try to send a reply, and why it failed", () => {
  const { told, watch } = watching();
  const reply = {
    id: "s-1",
    session: "s",
    attempts: 1,
    traceparent,
    askedAtMs: Date.now() - 10,
    view: {},
  };
  const error = { kind: "forbidden", code: 230_013, heldBack: false };
  watch.deliveries(reply)({ state: "failed", error, retryInMs: 5_000 });
  expect(told.at(-1)).toEqual([
    "reply.failed",
    {
      traceparent,
      session: "s",
      reply: "s-1",
      reason: "forbidden 230013",
      givenUp: false,
      retryInMs: 5_000,
    },
  ]);
  watch.deliveries(reply)({ state: "sent" });
  expect(told.slice(-2)).toEqual([
    ["reply.sent", { traceparent, session: "s", reply: "s-1", attempts: 2 }],
    ["reply.delivered_seconds", { kind: "answer" }],
  ]);
  watch.deliveries(reply)({ state: "left" });
  expect(told.at(-1)?.[0]).toBe("end reply.deliver");
});
