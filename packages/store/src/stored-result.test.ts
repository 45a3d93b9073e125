import { shortenedResult } from "@larkline/protocol/tool";
import { describe, expect, it } from "vitest";
import { keepResult, resultPage } from "./stored-result.ts";
import { openTestStores } from "./testing.ts";

describe("a stored result", () => {
  it("EE-40: is read back page by page, and no page splits a character", async () => {
    const stores = openTestStores();
    const text = "你好🙂".repeat(1_000);
    const { handle, characters } = await keepResult(stores, "cli.oc_1", text);
    expect(characters).toBe(text.length);
    let read = "";
    let offset: number | undefined = 0;
    while (offset !== undefined) {
      const page = await resultPage(stores, "cli.oc_1", { handle, offset, characters: 7 });
      expect(page?.text).toMatch(/^(?:你|好|🙂)+$/u);
      read += page?.text ?? "";
      offset = page?.nextOffset;
    }
    expect(read).toBe(text);
  });

  it("is not found from another session, nor under another handle", async () => {
    const stores = openTestStores();
    const { handle } = await keepResult(stores, "cli.oc_1", "secret");
    const page = { offset: 0, characters: 10 };
    expect(await resultPage(stores, "cli.oc_2", { handle, ...page })).toBeUndefined();
    expect(await resultPage(stores, "cli.oc_1", { handle: `${handle}x`, ...page })).toBeUndefined();
    expect((await resultPage(stores, "cli.oc_1", { handle, ...page }))?.text).toBe("secret");
  });

  it("is shortened to its head, its tail and the handle", () => {
    const text = `${"a".repeat(5_000)}${"b".repeat(5_000)}`;
    const short = shortenedResult(
      text,
      { handle: "res_0123456789abcdef", characters: text.length },
      400,
    );
    expect(short.startsWith("a".repeat(300))).toBe(true);
    expect(short.endsWith("b".repeat(100))).toBe(true);
    expect(short).toContain("9600 of 10000 characters");
    expect(short).toContain("res_0123456789abcdef");
    expect(short.length).toBeLessThan(600);
  });
});
