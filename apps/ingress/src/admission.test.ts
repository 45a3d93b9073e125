import { describe, expect, it } from "vitest";
import { admit, type AdmissionRules, type ArrivedMessage } from "./messages.ts";

const nowMs = 1_800_000_000_000;
const rules: AdmissionRules = {
  botOpenId: "ou_bot",
  nowMs,
  maxAgeMs: 600_000,
  maxChars: 100,
  groups: "mention",
  tenants: null,
  botTurnsPerHour: 0,
};

const direct: ArrivedMessage = {
  senderOpenId: "ou_person",
  senderType: "user",
  chatType: "p2p",
  text: "hello",
  attachments: [],
  forwarded: false,
  mentions: [],
  mentionsBot: false,
  createdAtMs: nowMs,
  tenant: "home",
};
const inGroup: ArrivedMessage = { ...direct, chatType: "group", mentions: [{}], mentionsBot: true };

describe("admission", () => {
  it("accepts a direct message, and a group message that mentions the bot", () => {
    expect(admit(direct, rules)).toEqual({ verdict: "accept" });
    expect(admit(inGroup, rules)).toEqual({ verdict: "accept" });
  });

  it("ignores its own messages and those of other bots, also when they mention it", () => {
    const own = { ...inGroup, senderOpenId: "ou_bot" };
    expect(admit(own, rules)).toEqual({ verdict: "ignore", reason: "own_message" });
    const other = { ...inGroup, senderOpenId: "ou_other", senderType: "bot" as const };
    expect(admit(other, rules)).toEqual({ verdict: "ignore", reason: "bot_message" });
  });

  it("accepts mentions by other bots in groups where they are allowed, and sends such a bot no line of its own", () => {
    const allowed = { ...rules, botTurnsPerHour: 5 };
    const other = { ...inGroup, senderOpenId: "ou_other", senderType: "bot" as const };
    expect(admit(other, allowed)).toEqual({ verdict: "accept" });
    for (const [change, reason] of [
      [{ senderOpenId: "ou_bot" }, "own_message"],
      [{ senderOpenId: "" }, "bot_message"],
      [{ chatType: "p2p" }, "bot_message"],
      [{ mentionsBot: false }, "not_mentioned"],
      [{ text: "" }, "bot_message"],
      [{ text: "x".repeat(101) }, "bot_message"],
      [{ createdAtMs: 1 }, "bot_message"],
    ] as const) {
      const message = { ...other, ...change };
      expect(admit(message, { ...allowed, groups: "all" })).toEqual({ verdict: "ignore", reason });
    }
    expect(admit(other, { ...allowed, groups: "none" })).toEqual({
      verdict: "ignore",
      reason: "groups_off",
    });
    expect(admit(other, { ...allowed, tenants: ["other"] })).toEqual({
      verdict: "ignore",
      reason: "bot_message",
    });
    expect(admit({ ...other, mentionsBot: false }, { ...allowed, botOpenId: "" })).toEqual({
      verdict: "unsure",
    });
  });

  it("ignores a group message that mentions others, all members or no person", () => {
    for (const mentions of [[], [{}]]) {
      const message = { ...inGroup, mentions, mentionsBot: false };
      expect(admit(message, rules)).toEqual({ verdict: "ignore", reason: "not_mentioned" });
    }
  });

  it("is unsure about mentions while the bot does not know itself, but not about anything else", () => {
    const unknown = { ...rules, botOpenId: "" };
    expect(admit({ ...inGroup, mentionsBot: false }, unknown)).toEqual({ verdict: "unsure" });
    expect(admit({ ...inGroup, mentions: [], mentionsBot: false }, unknown)).toEqual({
      verdict: "ignore",
      reason: "not_mentioned",
    });
    expect(admit(direct, unknown)).toEqual({ verdict: "accept" });
    expect(admit({ ...direct, senderType: "bot", senderOpenId: "" }, unknown)).toEqual({
      verdict: "ignore",
      reason: "bot_message",
    });
  });

  it("calls a message late when it is older than the limit, not at the limit, and never without a time", () => {
    expect(admit({ ...direct, createdAtMs: nowMs - 600_000 }, rules)).toEqual({
      verdict: "accept",
    });
    expect(admit({ ...direct, createdAtMs: nowMs - 600_001 }, rules)).toEqual({
      verdict: "late",
      ageMs: 600_001,
    });
    expect(admit({ ...direct, createdAtMs: 0 }, rules)).toEqual({ verdict: "accept" });
    expect(admit({ ...direct, createdAtMs: nowMs + 60_000 }, rules)).toEqual({ verdict: "accept" });
  });

  it("does not tell a group about a late message that was not for the bot", () => {
    const message = { ...inGroup, mentionsBot: false, createdAtMs: 1 };
    expect(admit(message, rules)).toEqual({ verdict: "ignore", reason: "not_mentioned" });
  });

  it("follows the group policy: all groups, or none", () => {
    const message = { ...inGroup, mentions: [], mentionsBot: false };
    expect(admit(message, { ...rules, groups: "all" })).toEqual({ verdict: "accept" });
    expect(admit(inGroup, { ...rules, groups: "none" })).toEqual({
      verdict: "ignore",
      reason: "groups_off",
    });
    expect(admit(direct, { ...rules, groups: "none" })).toEqual({ verdict: "accept" });
  });

  it("answers only people of the tenants that the bot is for, and none whose tenant is unknown", () => {
    const home = { ...rules, tenants: ["home"] };
    expect(admit(direct, home)).toEqual({ verdict: "accept" });
    expect(admit({ ...direct, tenant: "other" }, home)).toEqual({ verdict: "foreign_tenant" });
    expect(admit({ ...inGroup, tenant: undefined }, home)).toEqual({ verdict: "foreign_tenant" });
    expect(admit({ ...inGroup, tenant: "other", mentionsBot: false }, home)).toEqual({
      verdict: "ignore",
      reason: "not_mentioned",
    });
    expect(admit({ ...direct, tenant: undefined }, rules)).toEqual({ verdict: "accept" });
  });

  it("tells people of other tenants so when they turn to it, not at every word of a group whose every message it gets", () => {
    const open: AdmissionRules = { ...rules, groups: "all", tenants: ["home"] };
    const said = { ...inGroup, mentions: [], mentionsBot: false };
    expect(admit(said, open)).toEqual({ verdict: "accept" });
    expect(admit({ ...said, tenant: "other" }, open)).toEqual({
      verdict: "ignore",
      reason: "not_mentioned",
    });
    expect(admit({ ...inGroup, tenant: "other" }, open)).toEqual({ verdict: "foreign_tenant" });
  });

  it("limits the length of a message", () => {
    expect(admit({ ...direct, text: "x".repeat(100) }, rules)).toEqual({ verdict: "accept" });
    expect(admit({ ...direct, text: "x".repeat(101) }, rules)).toEqual({ verdict: "too_long" });
  });

  it("notices a message without words", () => {
    expect(admit({ ...inGroup, text: " " }, rules)).toEqual({ verdict: "empty" });
    expect(admit({ ...inGroup, text: " ", createdAtMs: 1 }, rules)).toEqual({ verdict: "empty" });
  });

  it("takes files and forwarded messages without words", () => {
    expect(admit({ ...direct, text: "", attachments: [{}] }, rules)).toEqual({ verdict: "accept" });
    expect(admit({ ...direct, text: "", forwarded: true }, rules)).toEqual({ verdict: "accept" });
  });
});
