import { describe, expect, it } from "vitest";
import { errorKindOf, isRetryableKind } from "./error-kind.ts";

describe("errorKindOf", () => {
  it.each([
    ["im.message.reply", 230071, "no_threads"],
    ["im.message.update", 230071, "bad_request"],
    ["im.message.reply", 230072, "target_gone"],
    ["im.message.reply", 230050, "target_gone"],
    ["im.message.create", 230050, "forbidden"],
    ["im.message.reply", 230011, "target_gone"],
    ["im.message.reply", 230110, "target_gone"],
    ["im.message.reply", 99992354, "target_gone"],
    ["im.message.create", 99992354, "bad_request"],
    ["im.message.create", 230020, "rate_limit"],
    ["im.message.create", 99991400, "rate_limit"],
    ["im.message.create", 230049, "retry"],
    ["im.message.create", 230002, "forbidden"],
    ["im.message.create", 230025, "too_long"],
    ["im.message.create", 230028, "content_blocked"],
    ["im.message.create", 99991672, "app_setup"],
    ["im.message.create", 99991671, "token"],
    ["auth.tenantAccessToken", 10014, "app_setup"],
    ["bot.info", 99991663, "token"],
    ["im.message.create", 1, "bad_request"],
  ])("%s answered with %d is %s", (api, code, kind) => expect(errorKindOf(api, { code, httpStatus: 400 })).toBe(kind));

  it("does not carry the codes of messages over to other families", () => {
    expect(errorKindOf("cardkit.card.create", { code: 230002, httpStatus: 400 })).toBe("bad_request");
  });

  it.each([
    [429, "rate_limit"],
    [500, "unavailable"],
    [504, "unavailable"],
    [403, "forbidden"],
    [404, "bad_request"],
    [200, "unknown"],
  ])("goes by the status %d when nobody listed the code", (status, kind) =>
    expect(errorKindOf("im.message.create", { code: 0, httpStatus: status })).toBe(kind),
  );

  it("repeats only what may succeed unchanged", () => {
    expect(isRetryableKind("unavailable")).toBe(true);
    expect(isRetryableKind("forbidden")).toBe(false);
    expect(isRetryableKind("unknown")).toBe(false);
  });
});
