import { EngineError } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import { sessionIdOf, sessionKeyOf } from "./index.ts";

describe("session ids", () => {
  it.each([
    [{ chatId: "oc_1", messageId: "om_1" }, "oc_1"],
    [{ chatId: "oc_1", rootId: "om_root", messageId: "om_1" }, "oc_1:om_root"],
    [{ chatId: "oc_1", rootId: "om_root" }, "oc_1:om_root"],
    [{ messageId: "om_9" }, "om_9"],
    [{ rootId: "om_root", messageId: "om_9" }, "om_9"],
    [{ rootId: "om_root" }, ""],
    [{}, ""],
    [{ chatId: "", rootId: "", messageId: "om_9" }, "om_9"],
    [{ chatId: "oc_1", rootId: "" }, "oc_1"],
  ])("AL-50: %j is %j", (place, expected) => {
    expect(sessionIdOf(place)).toBe(expected);
  });

  it("a key names app, chat and thread", () => {
    expect(sessionKeyOf("cli_app", "oc_1")).toBe("cli_app.oc_1");
    expect(sessionKeyOf("cli_app", "oc_1:om_root")).toBe("cli_app.oc_1.om_root");
  });

  it.each(["", ":", "oc_1:", "a b", "a/b", "a{b}", "群", "a\n", "x".repeat(300)])(
    "the id %j has no key",
    (sessionId) => {
      expect(() => sessionKeyOf("app", sessionId)).toThrow(EngineError);
    },
  );

  it("two conversations never share a key", () => {
    expect(() => sessionKeyOf("app", "a.b")).toThrow(EngineError);
    expect(() => sessionKeyOf("app.a", "b")).toThrow(EngineError);
    expect(() => sessionKeyOf("", "b")).toThrow(EngineError);
  });
});
