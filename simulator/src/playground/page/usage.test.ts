import { expect, test } from "vitest";
import { Usage } from "./store.ts";

const call = (method: string, path: string, at: number) => ({
  method,
  path,
  at,
  status: 200,
  code: 0,
  durationMs: 1,
  logId: "",
});

test("calls are counted by API, whatever ids they carry, and forgotten after a minute", () => {
  const usage = new Usage();
  usage.count(call("POST", "/open-apis/im/v1/messages/om_0a1b/reply", 1000));
  usage.count(call("POST", "/open-apis/im/v1/messages/om_ffff/reply", 60_500));
  usage.count(call("DELETE", "/open-apis/im/v1/messages/om_1/reactions/ZCaC-1", 60_600));
  usage.count(
    call("PUT", "/open-apis/cardkit/v1/cards/7312345678901234567/elements/answer/content", 60_700),
  );
  expect(usage.rows(60_900)).toEqual([
    { api: "POST /im/v1/messages/:id/reply", lastSecond: 1, lastMinute: 2 },
    { api: "DELETE /im/v1/messages/:id/reactions/:id", lastSecond: 1, lastMinute: 1 },
    { api: "PUT /cardkit/v1/cards/:id/elements/:id/content", lastSecond: 1, lastMinute: 1 },
  ]);
  expect(usage.rows(61_000).map(({ lastMinute }) => lastMinute)).toEqual([1, 1, 1]);
});

test("operations on a card are those of the last second", () => {
  const usage = new Usage();
  const path = "/open-apis/cardkit/v1/cards/7312345678901234567/settings";
  for (const at of [1000, 1500, 2100]) usage.count(call("PATCH", path, at));
  expect(usage.onCard("7312345678901234567", 2200)).toBe(2);
  expect(usage.onCard("7000000000000000000", 2200)).toBe(0);
});
