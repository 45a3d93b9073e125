// What the parts of pages say, without a server.
import { expect, it } from "vitest";

import { moment } from "./html.ts";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;

it.each([
  [59_499, "59 seconds ago"],
  [59_500, "1 minute ago"],
  [59_999, "1 minute ago"],
  [minute, "1 minute ago"],
  [hour - 30 * second - 1, "59 minutes ago"],
  [hour - 30 * second, "1 hour ago"],
  [24 * hour - 30 * minute - 1, "23 hours ago"],
  [24 * hour - 30 * minute, "1 day ago"],
  [-59_999, "in 1 minute"],
])("says a moment %i ms ago as %s", (agoMs, words) => {
  const nowMs = Date.UTC(2026, 0, 31);
  expect(moment({ language: "en", nowMs }, nowMs - agoMs).markup).toContain(`>${words}</time>`);
});
