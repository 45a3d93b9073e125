import { turnIdOf } from "@larkline/protocol";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { SessionRetention } from "./retention.ts";
import { folderLimits, problemOfPath, type SessionFiles } from "./session-files.ts";
import type { SessionStore } from "./session-store.ts";
import {
  commitOf,
  messageOf,
  mustClaim,
  openCalls,
  outboxRecord,
  saveAs,
} from "./suite-samples.ts";

interface Harness {
  files: SessionFiles;
  /** The same as another process sees it. */
  elsewhere: SessionFiles;
  store: SessionStore;
  retention: SessionRetention;
  close(): Promise<void>;
}

const session = "cli_app.oc_chat.main";
const turnId = turnIdOf(session, 1);

/** What working folders of sessions promise. Call it at the top level of a test file. */
export function describeSessionFiles(name: string, makeHarness: () => Promise<Harness>): void {
  describe(`${name}: working folder of a session`, () => {
    let harness: Harness;
    let files: SessionFiles;
    let claim: Awaited<ReturnType<typeof mustClaim>>;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ files } = harness);
      const { wakeGen } = await harness.store.append(messageOf(session, "om_1"));
      claim = await mustClaim(harness.store, session, wakeGen);
      await saveAs(harness.store, claim, { mode: "continue", open: openCalls("c1", "c2") });
    });
    afterEach(() => harness.close());

    const write = async (
      path: string,
      text: string | undefined,
      { call = "c1", by = "ou_ann", of = files } = {},
    ) => await of.change(session, { turnId, call, by, path }, () => text);
    const all = async () =>
      (await harness.elsewhere.all(session)).map(({ path, text }) => [path, text]);

    it("keeps files for every process, by path", async () => {
      expect(await write("notes/b.md", "城\nline 2")).toBe("written");
      expect(await write("a.txt", "")).toBe("written");
      expect(await all()).toEqual([
        ["a.txt", ""],
        ["notes/b.md", "城\nline 2"],
      ]);
      expect(await harness.elsewhere.read(session, "notes/b.md")).toMatchObject({
        bytes: 10,
        by: ["ou_ann"],
      });
      expect(await harness.elsewhere.read("cli_app.oc_other.main", "notes/b.md")).toBeUndefined();
      expect(await write("a.txt", undefined)).toBe("written");
      expect(await all()).toEqual([["notes/b.md", "城\nline 2"]]);
    });

    it("loses no change of calls that write one file at the same time", async () => {
      await write("list", "");
      const add = async (call: string, of: SessionFiles, word: string) =>
        await of.change(
          session,
          { turnId, call, by: "ou_ann", path: "list" },
          (file) => `${file?.text}${word}`,
        );
      const results = await Promise.all([
        add("c1", files, "one "),
        add("c2", harness.elsewhere, "two "),
      ]);
      expect(results).toEqual(["written", "written"]);
      const [[, text = ""] = []] = await all();
      expect(text.split(" ").toSorted()).toEqual(["", "one", "two"]);
    });

    it("tells a call that runs again, and takes nothing from one that is answered", async () => {
      await write("a", "one");
      const file = await files.read(session, "a");
      const isOf = (call: string, turn = turnId) =>
        file?.isOf({ turnId: turn, call, by: "", path: "a" });
      expect([isOf("c1"), isOf("c2"), isOf("c1", turnIdOf(session, 2))]).toEqual([
        true,
        false,
        false,
      ]);
      await harness.store.deliver(session, "c1", { ok: true, result: "done" });
      expect(await write("a", "late")).toBe("closed");
      expect(await write("a", "two", { call: "unknown" })).toBe("closed");
      expect(await all()).toEqual([["a", "one"]]);
    });

    it("takes no file away that was written after a deletion which runs again", async () => {
      const remove = async (call: string) =>
        await files.change(session, { turnId, call, by: "ou_ann", path: "a" }, () => undefined);
      expect(await remove("c1")).toBe("written"); // there is none
      await write("a", "one", { call: "c2" });
      expect(await remove("c1")).toBe("written");
      expect(await all()).toEqual([["a", "one"]]);
      expect(await remove("c2")).toBe("written");
      expect(await all()).toEqual([]);
    });

    it("is bounded in the size of a file, of the folder, and in its files", async () => {
      expect(await write("large", "x".repeat(folderLimits.fileBytes + 1))).toBe("length");
      for (let at = 1; at < folderLimits.bytes / folderLimits.fileBytes; at += 1) {
        expect(await write(`f${at}`, "x".repeat(folderLimits.fileBytes))).toBe("written");
      }
      expect(await write("one too many", "x".repeat(folderLimits.fileBytes))).toBe("full");
      expect(await write("f1", "small")).toBe("written");
      const before = (await all()).length;
      for (let at = before; at < folderLimits.files; at += 1) {
        expect(await write(`s${at}`, "x")).toBe("written");
      }
      expect(await write("another", "x")).toBe("full");
      expect(await write("f1", "still")).toBe("written");
    });

    it("goes with its conversation: with a new one, a reset, the person and the session", async () => {
      await write("anns", "a", { by: "ou_ann" });
      await write("bens", "b", { by: "ou_ben" });
      await write("both", "1", { by: "ou_ann" });
      await write("both", "2", { by: "ou_ben" });
      expect(await files.eraseBy(session, "ou_ann")).toBe(2);
      expect(await all()).toEqual([["bens", "b"]]);
      await harness.store.reset(session, {
        by: "console",
        replyOf: async (id) => outboxRecord(session, id),
      });
      expect(await all()).toEqual([]);

      const again = async (id: string) => {
        const { wakeGen } = await harness.store.append(messageOf(session, id));
        claim = await mustClaim(harness.store, session, wakeGen);
        await saveAs(harness.store, claim, { mode: "continue", open: openCalls("c1") });
        expect(await write("a", "x")).toBe("written");
      };
      await again("om_2");
      await commitOf(harness.store, claim, { context: { keep: 2 } });
      expect(await all()).toHaveLength(1);
      await again("om_3");
      await commitOf(harness.store, claim, { context: { keep: 0 } });
      expect(await all()).toEqual([]);
      await again("om_4");
      await commitOf(harness.store, claim);
      expect(await harness.retention.erase(session, 1_000)).toBe("removed");
      expect(await all()).toEqual([]);
    });

    it("takes plain relative paths only", () => {
      const bad = [
        "/etc/passwd",
        "../a",
        "a/../b",
        "a//b",
        "./a",
        "a/",
        "a\\b",
        "a\0b",
        "a\nb",
        " a",
        "a\u202e.md",
      ];
      expect(
        [...bad, "x".repeat(201), "1/2/3/4/5/6/7/8/9"].filter((path) => !problemOfPath(path)),
      ).toEqual([]);
      expect(
        ["a", "计划/第一版.md", ".env", "a b/c-d_e.txt"].filter((path) => problemOfPath(path)),
      ).toEqual([]);
    });
  });
}
