import type { AuditRecord } from "./audit-log.ts";
import type { Message } from "@larkline/protocol/content";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Archive } from "./archive.ts";
import { assistantText, userText } from "./suite-samples.ts";

/** An archive under test with storage of its own. */
export interface ArchiveHarness {
  archive: Archive;
  /** The same archive as another process sees it. */
  elsewhere: Archive;
  close(): Promise<void>;
}

const app = "cli_app";
const session = `${app}.oc_chat`;
const direct = `${app}.oc_direct`;
const marker = userText("[deleted]");
const people = { ou_ann: "group", ou_ben: "group" };

function said(text: string, sender: string): Message {
  return { role: "user", content: [{ type: "text", text }], sender };
}

function texts(count: number): Message[] {
  return Array.from({ length: count }, (_, at) => assistantText(`message ${at}`));
}

async function collected<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

/** What every Archive promises. Call it at the top level of a test file. */
export function describeArchive(name: string, makeHarness: () => Promise<ArchiveHarness>): void {
  describe(`${name}: archive`, () => {
    let harness: ArchiveHarness;
    let archive: Archive;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ archive } = harness);
    });
    afterEach(() => harness.close());

    it("knows nothing of a session that it was never given", async () => {
      expect(await archive.ends([session])).toEqual(new Map());
      expect(await archive.read(session, 0, 10)).toEqual([]);
      expect(await archive.peopleOf(session)).toEqual({});
      await archive.forget(session, "ou_ann");
    });

    it("keeps messages under their numbers, for every process", async () => {
      const messages = [said("hello", "ou_ann"), ...texts(3)];
      await archive.addMessages({ session, first: 7, messages, people });
      const { elsewhere } = harness;
      expect(await elsewhere.ends([session, direct])).toEqual(
        new Map([[session, { length: 11, last: messages[3] }]]),
      );
      expect(await elsewhere.read(session, 0, 2)).toEqual([
        { number: 7, message: messages[0] },
        { number: 8, message: messages[1] },
      ]);
      expect((await elsewhere.read(session, 9, 10)).map(({ number }) => number)).toEqual([9, 10]);
      expect(await elsewhere.peopleOf(session)).toEqual(people);
    });

    it("keeps any text as it was", async () => {
      const text = '\'; drop table messages; -- \u0000 \ud800 \\u0000 中文 🙂 "quoted"\n';
      const call: Message = {
        role: "assistant",
        content: [{ type: "tool_use", id: "c1", name: "x", arguments: { b: 1, a: [null, text] } }],
      };
      await archive.addMessages({
        session,
        first: 0,
        messages: [said(text, "a\u0000|b"), call],
        people: {},
      });
      expect((await archive.read(session, 0, 10)).map(({ message }) => message)).toEqual([
        said(text, "a\u0000|b"),
        call,
      ]);
    });

    it("is not changed by what is added again, in parts or by several at once", async () => {
      const messages = texts(20);
      const add = async (from: Archive, first: number, end: number): Promise<void> =>
        await from.addMessages({ session, first, messages: messages.slice(first, end), people });
      await Promise.all([
        add(archive, 0, 12),
        add(harness.elsewhere, 5, 20),
        add(archive, 3, 9),
        add(harness.elsewhere, 0, 20),
      ]);
      await archive.addMessages({
        session,
        first: 4,
        messages: [assistantText("another")],
        people,
      });
      const kept = await archive.read(session, 0, 100);
      expect(kept).toEqual(messages.map((message, number) => ({ number, message })));
    });

    it("finds the sessions of a person in one app", async () => {
      await archive.addMessages({ session, first: 0, messages: texts(1), people });
      await archive.addMessages({
        session: direct,
        first: 0,
        messages: texts(1),
        people: { ou_ann: "p2p" },
      });
      await archive.addMessages({
        session: "cli_other.oc_x",
        first: 0,
        messages: texts(1),
        people,
      });
      expect((await archive.sessionsOf(app, "ou_ann")).toSorted()).toEqual(
        [session, direct].toSorted(),
      );
      expect(await archive.sessionsOf(app, "ou_ben")).toEqual([session]);
      expect(await archive.sessionsOf("cli", "ou_ben")).toEqual([]);
      await archive.forget(session, "ou_ben");
      await archive.forget(session, "ou_ben");
      expect(await archive.sessionsOf(app, "ou_ben")).toEqual([]);
      expect(await archive.sessionsOf(app, "ou_ann")).toHaveLength(2);
    });

    it("erases a session for good, even while a worker is about to add it again", async () => {
      const messages = texts(5);
      await archive.addMessages({ session: direct, first: 0, messages, people: { ou_ann: "p2p" } });
      await archive.erase(direct, 5);
      await archive.erase(direct, 3);
      await harness.elsewhere.addMessages({
        session: direct,
        first: 0,
        messages,
        people: { ou_ann: "p2p" },
      });
      expect(await archive.read(direct, 0, 10)).toEqual([]);
      expect(await archive.sessionsOf(app, "ou_ann")).toEqual([]);
      expect(await archive.ends([direct])).toEqual(new Map([[direct, { length: 5 }]]));
      await archive.addMessages({
        session: direct,
        first: 4,
        messages: texts(2),
        people: { ou_ann: "p2p" },
      });
      expect(await archive.sessionsOf(app, "ou_ann")).toEqual([direct]);
      expect(await archive.read(direct, 0, 10)).toEqual([
        { number: 5, message: assistantText("message 1") },
      ]);
    });

    it("erases what it has never seen", async () => {
      await archive.erase(direct, 2);
      await archive.addMessages({ session: direct, first: 0, messages: texts(3), people: {} });
      expect((await archive.read(direct, 0, 10)).map(({ number }) => number)).toEqual([2]);
    });

    it("puts markers in place of messages, also of those that come later", async () => {
      const messages = [said("one", "ou_ann"), assistantText("two"), said("three", "ou_ann")];
      await archive.addMessages({ session, first: 0, messages: messages.slice(0, 2), people });
      for (let round = 0; round < 2; round += 1) {
        await archive.redact(session, { person: "ou_ann", numbers: [0, 2], marker });
      }
      await harness.elsewhere.addMessages({ session, first: 0, messages, people });
      expect((await archive.read(session, 0, 10)).map(({ message }) => message)).toEqual([
        marker,
        messages[1],
        marker,
      ]);
    });

    it("erases and adds at the same time without leaving anything behind", async () => {
      const messages = texts(30);
      for (let round = 0; round < 10; round += 1) {
        const key = `${app}.oc_race.r${round}`;
        await Promise.all([
          archive.addMessages({ session: key, first: 0, messages, people: {} }),
          harness.elsewhere.erase(key, 30),
          harness.elsewhere.addMessages({
            session: key,
            first: 10,
            messages: messages.slice(10),
            people: {},
          }),
        ]);
        expect(await archive.read(key, 0, 100)).toEqual([]);
      }
    });

    it("keeps audit records by part and place, once", async () => {
      const record = (atMs: number, fields: Partial<AuditRecord> = {}): AuditRecord => ({
        kind: "call_ended",
        atMs,
        app,
        userId: "ou_ann",
        ...fields,
      });
      const entries = [1, 2, 3].map((number) => ({
        atMs: 100,
        number,
        record: record(100, { callId: `c${number}` }),
      }));
      expect(await archive.lastAudit("one")).toBeUndefined();
      await archive.addAudit("one", entries.slice(0, 2));
      await Promise.all([
        archive.addAudit("one", entries),
        harness.elsewhere.addAudit("one", entries),
      ]);
      await archive.addAudit("two", [
        { atMs: 50, number: 0, record: record(50) },
        { atMs: 60, number: 0, record: record(60, { userId: "ou_ben" }) },
        { atMs: 70, number: 0, record: record(70, { app: "cli_other" }) },
      ]);
      expect(await harness.elsewhere.lastAudit("one")).toEqual({ atMs: 100, number: 3 });
      const theirs = await collected(archive.auditOf(app, "ou_ann"));
      expect(theirs).toEqual([record(50), ...entries.map((each) => each.record)]);
    });

    it("takes thousands of messages at once", async () => {
      const messages = texts(3_000);
      await archive.addMessages({ session, first: 0, messages, people });
      expect(await archive.ends([session])).toEqual(
        new Map([[session, { length: 3_000, last: messages.at(-1) }]]),
      );
    });
  });
}
