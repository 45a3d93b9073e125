import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { MemoryOwner } from "@larkline/protocol";
import type { MemoryStore } from "./memory-store.ts";

/** A store under test with storage of its own. */
export interface MemoryStoreHarness {
  store: MemoryStore;
  /** The same store as another process sees it. */
  elsewhere: MemoryStore;
  /** Names and values of everything that is stored, as one text. */
  keys(): Promise<string>;
  now(): number;
  advance(ms: number): Promise<void>;
  close(): Promise<void>;
}

const dayMs = 86_400_000;
const ann: MemoryOwner = { kind: "person", app: "cli_a", tenant: "t1", id: "ou_ann" };
const chat: MemoryOwner = { kind: "chat", app: "cli_a", tenant: "t1", id: "oc_team" };

/** What every MemoryStore promises. Call it at the top level of a test file. */
export function describeMemoryStore(
  name: string,
  makeHarness: () => Promise<MemoryStoreHarness>,
): void {
  describe(`${name}: memory store`, () => {
    let harness: MemoryStoreHarness;
    let store: MemoryStore;
    let elsewhere: MemoryStore;
    let calls = 0;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ store, elsewhere } = harness);
      calls = 0;
    });
    afterEach(() => harness.close());

    const write = async (
      text: string,
      owner: MemoryOwner = ann,
      by = "ou_ann",
      call = `turn c${(calls += 1)}`,
    ) => await store.remember(owner, { call, text, by });
    const textsOf = async (owner: MemoryOwner) =>
      (await elsewhere.list(owner)).memories.map(({ text }) => text);
    const idOf = async (text: string, owner: MemoryOwner = ann): Promise<string> =>
      (await store.list(owner)).memories.find((one) => one.text === text)?.id ?? "";

    it("keeps what was said, for every process, the newest first", async () => {
      await write("likes tea");
      await harness.advance(5);
      await write('坐靠窗的位置 "A"\n');
      const { off, memories } = await elsewhere.list(ann);
      expect(off).toBe(false);
      expect(memories).toMatchObject([
        { text: '坐靠窗的位置 "A"', by: "ou_ann", uses: 0 },
        { text: "likes tea", by: "ou_ann" },
      ]);
      expect(
        memories.every(({ atMs, usedAtMs }) => atMs === usedAtMs && atMs <= harness.now()),
      ).toBe(true);
    });

    it("AT-23: tells people, chats, bots and tenants apart", async () => {
      await write("likes tea");
      const others: MemoryOwner[] = [
        { ...ann, id: "ou_ben" },
        { ...ann, app: "cli_b" },
        { ...ann, tenant: "t2" },
        { ...ann, tenant: "t10" },
        { kind: "person", app: "cli_a", id: "ou_ann" },
        { ...ann, kind: "chat" },
        { ...chat, id: "oc_other" },
      ];
      for (const [at, owner] of others.entries()) {
        expect(await textsOf(owner)).toEqual([]);
        await write(`note ${at}`, owner);
      }
      for (const [at, owner] of others.entries()) {
        expect(await textsOf(owner)).toEqual([`note ${at}`]);
        expect(await store.forget(owner, [await idOf("likes tea")])).toBe(0);
      }
      expect(await textsOf(ann)).toEqual(["likes tea"]);
    });

    it("AT-24: writes once per call, and not again after the memory was taken away", async () => {
      const first = await write("likes tea", ann, "ou_ann", "turn c1");
      const again = await elsewhere.remember(ann, {
        call: "turn c1",
        text: "likes tea",
        by: "ou_ann",
      });
      expect(again).toEqual(first);
      expect(await textsOf(ann)).toEqual(["likes tea"]);
      const id = "id" in first ? first.id : "";
      const taken = await Promise.all([store.forget(ann, [id]), elsewhere.forget(ann, [id])]);
      expect(taken.toSorted()).toEqual([0, 1]);
      expect(await write("likes tea", ann, "ou_ann", "turn c1")).toEqual({ state: "forgotten" });
      expect(await textsOf(ann)).toEqual([]);
      expect(await write("likes tea", ann, "ou_ann", "turn c2")).toMatchObject({
        state: "written",
      });
    });

    it("keeps one memory of a text", async () => {
      const first = await write("likes tea");
      expect(await write(" likes tea ")).toEqual({ ...first, state: "known" });
      expect(await textsOf(ann)).toEqual(["likes tea"]);
    });

    it("takes texts of 1 to 1,000 characters", async () => {
      expect(await write(" \n ")).toEqual({ state: "length" });
      expect(await write("a b ".repeat(251))).toEqual({ state: "length" });
      expect(await write("茶".repeat(1_000))).toMatchObject({ state: "written" });
    });

    it.each([
      "my password is hunter2",
      "the PIN: 4711",
      "密码是 abc123",
      "口令：芝麻开门",
      "API_KEY=abcdefgh12345678",
      "sk-ant-REDACTED",
      "the key 9f86d081884c7d659a2feaa0c55ad015",
      "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
      "-----BEGIN RSA PRIVATE KEY-----",
    ])("refuses what looks like a secret: %s", async (text) => {
      expect(await write(text)).toEqual({ state: "secret" });
      expect(await textsOf(ann)).toEqual([]);
    });

    it.each([
      "changes passwords on Mondays",
      "works in room B-1204 on the 3rd floor",
      "see https://docs.example.com/guides/2026/how-to-travel-by-train-1",
      "每周一改密码",
    ])("keeps what does not: %s", async (text) => {
      expect(await write(text)).toMatchObject({ state: "written" });
    });

    it("finds those with most words in common, then the newest", async () => {
      for (const text of [
        "likes green tea",
        "has a cat",
        "travels by train",
        "drinks tea at noon",
        "喜欢靠窗的座位",
      ]) {
        await write(text);
        await harness.advance(2);
      }
      const found = async (query: string) =>
        (await elsewhere.find(ann, [ann], query)).map(({ text }) => text);
      expect((await found("Green TEA, please")).slice(0, 2)).toEqual([
        "likes green tea",
        "drinks tea at noon",
      ]);
      expect((await found("订一个靠窗位")).at(0)).toBe("喜欢靠窗的座位");
      expect(await found("nothing of this")).toEqual([
        "喜欢靠窗的座位",
        "drinks tea at noon",
        "travels by train",
        "has a cat",
        "likes green tea",
      ]);
    });

    it.each(["", Array.from({ length: 40 }, (_, at) => `word${at}`).join(" ")])(
      "counts whole words, each once, in queries of any length",
      async (more) => {
        for (const text of ["tea_cup", "teapots, steam", "cat cat cat", "a tea for the cat"]) {
          await write(text);
          await harness.advance(2);
        }
        const found = await elsewhere.find(ann, [ann], `cat tea cup ${more}`);
        expect(found.map(({ text }) => text)).toEqual([
          "a tea for the cat",
          "tea_cup",
          "cat cat cat",
          "teapots, steam",
        ]);
      },
    );

    it("finds at most 8 and 2,000 characters, of a person and a chat together", async () => {
      for (let at = 0; at < 6; at += 1) {
        await write(`mine ${at}`);
        await write(`ours ${at}`, chat);
      }
      const found = await store.find(ann, [ann, chat], "");
      expect(found).toHaveLength(8);
      expect(new Set(found.map(({ owner }) => owner.kind))).toEqual(new Set(["person", "chat"]));
      for (let at = 0; at < 4; at += 1) await write(`long ${at} ${"x ".repeat(400)}`);
      const characters = (await store.find(ann, [ann, chat], "long x")).reduce(
        (sum, { text }) => sum + text.length,
        0,
      );
      expect(characters).toBeGreaterThan(1_600);
      expect(characters).toBeLessThanOrEqual(2_000);
    });

    it("keeps 200 of an owner: the least used one goes", async () => {
      for (let at = 0; at < 200; at += 1) await write(`note ${at}`);
      await store.used(ann, [await idOf("note 0")]);
      await write("one more");
      const texts = await textsOf(ann);
      expect(texts).toHaveLength(200);
      expect(texts).toEqual(expect.arrayContaining(["one more", "note 0"]));
      await write("ours", chat);
      expect(await textsOf(chat)).toEqual(["ours"]);
    });

    it("AT-25: a memory ends a year after its last use and leaves nothing", async () => {
      await write("likes tea");
      await write("has a cat");
      await harness.advance(200 * dayMs);
      await store.used(ann, [await idOf("likes tea")]);
      await harness.advance(200 * dayMs);
      expect(await harness.keys()).not.toContain("has a cat");
      expect(await textsOf(ann)).toEqual(["likes tea"]);
      await harness.advance(200 * dayMs);
      expect(await harness.keys()).toBe("[]");
    });

    it("AT-23, AT-25: keeps the text of many for the next look-up, and forgets it with each change", async () => {
      const kept = async () => /"[^"]*:look-up"/.test(await harness.keys());
      const find = async (owner: MemoryOwner) =>
        (await elsewhere.find(owner, [owner], "")).map(({ text }) => text);
      const other = { ...ann, tenant: "t2" };
      for (let at = 0; at < 31; at += 1) await write(`note ${at}`);
      await write("of another tenant", other);
      await find(ann);
      expect(await kept()).toBe(false);
      await harness.advance(5);
      await write("the newest");
      expect(await find(ann)).toContain("the newest");
      expect(await kept()).toBe(true);
      expect(await find(ann)).toContain("the newest");
      expect(await find(other)).toEqual(["of another tenant"]);

      await write("a later one");
      expect(await kept()).toBe(false);
      expect(await find(ann)).toContain("a later one");
      await store.forget(ann, [await idOf("a later one")]);
      expect(await harness.keys()).not.toContain("a later one");
      expect(await find(ann)).not.toContain("a later one");
      await harness.advance(600_001);
      expect(await kept()).toBe(false);

      await harness.advance(365 * dayMs - 700_000);
      await find(ann);
      expect(await kept()).toBe(true);
      await harness.advance(100_000);
      expect(await harness.keys()).not.toContain("note");

      await store.erase(ann);
      for (let at = 0; at < 40; at += 1) await write(`again ${at}`);
      await find(ann);
      await store.switch(ann, "off");
      expect(await find(ann)).toEqual([]);
      expect(await harness.keys()).not.toContain("again");
    });

    it("does not bring back what was taken away by using it", async () => {
      await write("likes tea");
      const id = await idOf("likes tea");
      await store.forget(ann, [id]);
      await elsewhere.used(ann, [id]);
      expect(await textsOf(ann)).toEqual([]);
    });

    it("AT-25: what is forgotten leaves only the id of its call, for a day", async () => {
      await write("likes tea");
      expect(await store.forget(ann, [await idOf("likes tea")])).toBe(1);
      const left = await harness.keys();
      for (const word of ["tea", "ann", "ou_", ":of:", ":all"]) expect(left).not.toContain(word);
      await harness.advance(dayMs + 1);
      expect(await harness.keys()).toBe("[]");
    });

    it("AT-25: a person who wants nothing remembered has no memories, and gets none, nor those of the chat", async () => {
      await write("likes tea");
      await write("ours", chat);
      expect(await store.switch(ann, "off")).toBe(1);
      expect(await elsewhere.isOff(ann)).toBe(true);
      expect(await write("has a cat")).toEqual({ state: "off" });
      expect(await elsewhere.find(ann, [ann, chat], "tea")).toEqual([]);
      expect(await elsewhere.find(ann, [chat], "tea")).toEqual([]);
      expect(await elsewhere.find({ ...ann, id: "ou_ben" }, [chat], "tea")).toMatchObject([
        { text: "ours" },
      ]);
      expect(await harness.keys()).not.toContain("likes tea");
      await store.switch(ann, "on");
      expect(await elsewhere.list(ann)).toEqual({ off: false, memories: [] });
      expect(await write("has a cat")).toMatchObject({ state: "written" });
    });

    it("AT-16, AT-25: erasing an owner leaves nothing, in any tenant", async () => {
      await write("likes tea");
      await write("has a cat", { ...ann, tenant: "t2" });
      await store.forget(ann, [await idOf("likes tea")]);
      await write("travels by train");
      const { app, kind, id } = ann;
      expect((await store.everything({ app, kind, id })).memories).toHaveLength(2);
      expect(await store.count({ app, kind, id })).toBe(2);
      expect(await store.erase({ app, kind, id })).toBe(2);
      expect(await harness.keys()).toBe("[]");
      await store.switch(ann, "off");
      await store.erase({ app, kind, id });
      expect(await harness.keys()).toBe("[]");
    });

    it("AT-24: is taken back once, of whatever tenant, and by its owner only", async () => {
      await write("likes tea");
      const id = await idOf("likes tea");
      const { app, kind } = ann;
      expect(await store.takeBack({ app, kind, id: "ou_ben" }, id)).toBe(false);
      const taken = await Promise.all([
        store.takeBack(ann, id),
        elsewhere.takeBack({ app, kind, id: ann.id }, id),
      ]);
      expect(taken.toSorted()).toEqual([false, true]);
      expect(await textsOf(ann)).toEqual([]);
    });

    it("takes what one person has left with a chat away from it", async () => {
      await write("said by Ann", chat, "ou_ann");
      await write("said by Ben", chat, "ou_ben");
      expect(await store.eraseBy(chat, "ou_ann")).toBe(1);
      expect(await textsOf(chat)).toEqual(["said by Ben"]);
    });
  });
}
