import { expect, it } from "vitest";
import { messagesOf, timelineOf } from "./message-trace.ts";
import { appended, entry, received, session, startMs, traceOf } from "./trace-samples.fixture.ts";

it("a timeline has one line for the two ends of a span, and shows what has no end", () => {
  const begin = entry("turn.run", { at: 20, kind: "begin", span: "1", data: { a: 1 } });
  const end = entry("turn.run", {
    at: 120,
    kind: "end",
    span: "1",
    ms: 100,
    data: { outcome: "suspended" },
  });
  const other = entry("model.step", {
    at: 30,
    kind: "begin",
    span: "1",
    instance: "agent-worker-host-2",
  });
  const rows = timelineOf(traceOf(appended, end, begin, other).entries, { everyFrame: false });
  expect(rows.map(({ name, ms, isOpen }) => [name, ms, isOpen])).toEqual([
    ["message.received", undefined, false],
    ["message.appended", undefined, false],
    ["turn.run", 100, false],
    ["model.step", undefined, true],
  ]);
  expect(rows[2]?.data).toMatchObject({ a: 1, outcome: "suspended" });
});

it("frames of a card that follow each other are one line, each a line when asked for", () => {
  const frame = (at: number, failed?: string) =>
    entry("card.write", {
      at,
      kind: "span",
      ms: 10 + at,
      data: { operation: "cardkit.cardElement.content" },
      ...(failed === undefined ? {} : { failed }),
    });
  const sent = entry("card.write", {
    at: 9,
    kind: "span",
    ms: 5,
    data: { operation: "im.message.reply" },
  });
  const { entries } = traceOf(
    sent,
    ...[10, 20, 30, 40].map((at) => frame(at)),
    frame(50, "rate_limit"),
  );
  const short = timelineOf(entries, { everyFrame: false });
  expect(short.map(({ name, count }) => [name, count])).toEqual([
    ["message.received", 1],
    ["card.write", 1],
    ["card.write", 4],
    ["card.write", 1],
  ]);
  expect(short[2]).toMatchObject({ atMs: startMs + 10, untilMs: startMs + 90, ms: 35 });
  expect(timelineOf(entries, { everyFrame: true })).toHaveLength(7);
});

it("tells the messages of a trace apart that a client gave to several", () => {
  const other = { ...received, data: { ...received.data, message: "om_2" } };
  const place = { message: "om_2", session, seq: 5, ahead: 0 };
  const later = entry("message.appended", { at: 50, data: place });
  const ends = [4, 5].map((seq) =>
    entry("turn.ended", {
      at: 100 + seq,
      data: { turn: `${session}-${seq}`, outcome: `of ${seq}` },
    }),
  );
  const both = messagesOf([received, appended, other, later, ...ends]);
  expect(
    both.map(({ messageId, place: at, entries }) => [
      messageId,
      at?.seq,
      entries.at(-1)?.data["outcome"],
    ]),
  ).toEqual([
    ["om_1", 4, "of 4"],
    ["om_2", 5, "of 5"],
  ]);
  expect(messagesOf([])).toEqual([]);
});
