import { describe, expect, it } from "vitest";
import { maskedArguments } from "./masked-arguments.ts";

describe("maskedArguments", () => {
  it("AL-63: hides values under a secret name at any depth, whatever they are, and nothing else", () => {
    const input = {
      token: { nested: "s3cret" },
      headers: [{ name: "a", token: "s3cret" }, "token"],
      text: "token",
      none: null,
    };
    const shown = maskedArguments(input, ["token"]);
    expect(shown).toEqual({
      token: "***",
      headers: [{ name: "a", token: "***" }, "token"],
      text: "token",
      none: null,
    });
    expect(input.token).toEqual({ nested: "s3cret" });
  });
});
