import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { NameBook } from "./name-book.ts";

export interface NameBookHarness {
  /** Keeps five names. */
  book: NameBook;
  /** The same names as another process sees them. */
  elsewhere: NameBook;
  close(): Promise<void>;
}

/** What every NameBook promises. Call it at the top level of a test file. */
export function describeNameBook(name: string, makeHarness: () => Promise<NameBookHarness>): void {
  describe(`${name}: names`, () => {
    let harness: NameBookHarness;
    let book: NameBook;
    let elsewhere: NameBook;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ book, elsewhere } = harness);
    });
    afterEach(async () => await harness.close());

    it("gives the newest name of each id, and leaves out those that are not known", async () => {
      await book.keep(
        new Map([
          ["ou_ann", "Ann"],
          ["oc_team", "Team"],
        ]),
        1,
      );
      await elsewhere.keep(new Map([["ou_ann", "Ann 安"]]), 2);
      expect([...(await elsewhere.of(["oc_team", "ou_ann", "ou_none", "ou_ann", ""]))]).toEqual([
        ["oc_team", "Team"],
        ["ou_ann", "Ann 安"],
      ]);
      expect(await book.of([])).toEqual(new Map());
    });

    it("finds ids by a part of the name, in capitals or not", async () => {
      await book.keep(
        new Map([
          ["ou_ann", "Ann Lee 李安"],
          ["ou_bob", "Bob"],
        ]),
        1,
      );
      expect(await elsewhere.find("lee", 10)).toEqual(["ou_ann"]);
      expect(await elsewhere.find("李", 10)).toEqual(["ou_ann"]);
      expect(await elsewhere.find("zoe", 10)).toEqual([]);
    });

    it("says which ids nothing was written about lately, those without a name included", async () => {
      await book.keep(new Map([["ou_old", "Old"]]), 10);
      await book.keep(
        new Map([
          ["ou_new", "New"],
          ["ou_secret", ""],
        ]),
        20,
      );
      expect(await elsewhere.unknown(["ou_old", "ou_new", "ou_secret", "ou_none"], 15)).toEqual([
        "ou_old",
        "ou_none",
      ]);
      expect([...(await elsewhere.of(["ou_secret"]))]).toEqual([]);
    });

    it("is bounded: names that were written longest ago go", async () => {
      for (let at = 1; at <= 7; at += 1) await book.keep(new Map([[`ou_${at}`, `N${at}`]]), at);
      expect([...(await book.of(["ou_1", "ou_2", "ou_3", "ou_7"])).values()]).toEqual(["N3", "N7"]);
      expect(await book.find("n", 10)).toHaveLength(5);
    });

    it("forgets what a person is called", async () => {
      await book.keep(
        new Map([
          ["ou_ann", "Ann"],
          ["ou_bob", "Bob"],
        ]),
        1,
      );
      await elsewhere.erase(["ou_ann"]);
      expect([...(await book.of(["ou_ann", "ou_bob"])).values()]).toEqual(["Bob"]);
      expect(await book.unknown(["ou_ann"], 0)).toEqual([]);
      expect(await book.unknown(["ou_ann"], 1)).toEqual(["ou_ann"]);
    });
  });
}
