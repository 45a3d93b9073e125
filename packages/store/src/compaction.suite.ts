import type { Message } from "@larkline/protocol/content";
import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { FencedWrite } from "./session-types.ts";
import {
  assistantText,
  commitOf,
  contextAfter,
  messageOf,
  mustClaim,
  saveAs,
  userText,
} from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";

/** One turn: what it writes, and how its worker and its context behave. */
interface WrittenTurn {
  saved: number;
  committed: number;
  /** On the save, or on the commit. */
  on: "save" | "commit";
  context: { keep: number; summarised: boolean } | undefined;
  /** Claims of the turn before the one that writes: their workers die. */
  lostClaims: number;
}

const writtenTurn: fc.Arbitrary<WrittenTurn> = fc.record({
  saved: fc.nat({ max: 3 }),
  committed: fc.nat({ max: 3 }),
  on: fc.constantFrom("save" as const, "commit" as const),
  context: fc.option(fc.record({ keep: fc.nat({ max: 12 }), summarised: fc.boolean() }), {
    nil: undefined,
  }),
  lostClaims: fc.nat({ max: 1 }),
});

/** Runs a turn; returns what its claims showed, and how its writes change history and context. */
async function runTurn(
  store: SessionStore,
  { key, number, turn }: { key: string; number: number; turn: WrittenTurn },
): Promise<{ claimed: Message[][]; writes: Pick<FencedWrite, "history" | "context">[] }> {
  const textsOf = (step: string, count: number): Message[] =>
    Array.from({ length: count }, (_, i) => assistantText(`${number} ${step} ${i}`));
  const context = turn.context && {
    context: {
      keep: turn.context.keep,
      ...(turn.context.summarised ? { summary: userText(`summary ${number}`) } : {}),
    },
  };
  const saved = { history: textsOf("save", turn.saved), ...(turn.on === "save" ? context : {}) };
  const committed = {
    history: textsOf("commit", turn.committed),
    ...(turn.on === "commit" ? context : {}),
  };
  const claimed: Message[][] = [];
  const { wakeGen } = await store.append(messageOf(key, `om_${number}`));
  for (let lost = 0; lost < turn.lostClaims; lost += 1) {
    claimed.push((await mustClaim(store, key, wakeGen)).history);
  }
  const claim = await mustClaim(store, key, wakeGen);
  claimed.push(claim.history);
  await saveAs(store, claim, { mode: "continue", ...saved });
  await commitOf(store, claim, committed);
  return { claimed, writes: [saved, committed] };
}

/** What a model gets to see once a conversation was compacted, and what stays readable. */
export function describeCompaction(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: compaction`, () => {
    let store: SessionStore;
    let harness: SessionStoreHarness;

    beforeEach(async () => {
      harness = await makeHarness({});
      ({ store } = harness);
    });
    afterEach(() => harness.close());

    /** One turn that writes; returns what the claim showed. */
    async function turnWith(
      id: string,
      write: Partial<Pick<FencedWrite, "history" | "context">>,
    ): Promise<Message[]> {
      const { wakeGen } = await store.append(messageOf(session, id));
      const claim = await mustClaim(store, session, wakeGen);
      await commitOf(store, claim, write);
      return claim.history;
    }

    const four = [userText("1"), assistantText("2"), userText("3"), assistantText("4")];
    const summary = userText("前文摘要");

    it("a claim shows the summary and what was kept; history shows everything", async () => {
      await turnWith("om_1", { history: four.slice(0, 2) });
      await turnWith("om_2", { history: four.slice(2), context: { keep: 2, summary } });
      expect(await turnWith("om_3", {})).toEqual([summary, ...four.slice(2)]);
      expect(await store.history(session)).toEqual(four);
      expect(await store.summary(session)).toMatchObject({ messages: 4, inContext: 2 });
    });

    it("a claim continues from the summary with what is written later", async () => {
      await turnWith("om_1", { history: four, context: { keep: 1, summary } });
      expect(await turnWith("om_2", { history: [userText("5")] })).toEqual([
        summary,
        assistantText("4"),
      ]);
      expect(await turnWith("om_3", { history: [userText("6")] })).toEqual([
        summary,
        assistantText("4"),
        userText("5"),
      ]);
      expect(await turnWith("om_4", {})).toEqual([
        summary,
        assistantText("4"),
        userText("5"),
        userText("6"),
      ]);
    });

    it("a new context without a summary drops the old summary", async () => {
      await turnWith("om_1", { history: four, context: { keep: 1, summary } });
      await turnWith("om_2", { history: [userText("5")], context: { keep: 0 } });
      expect(await turnWith("om_3", { history: [userText("6")] })).toEqual([]);
      expect(await turnWith("om_4", {})).toEqual([userText("6")]);
      expect(await store.history(session)).toEqual([...four, userText("5"), userText("6")]);
    });

    it("the answer to a message is found by its number, in what was compacted too", async () => {
      const asked = (seq: number): Message => ({
        role: "user",
        content: [{ type: "text", text: "?" }],
        seq,
      });
      const call: Message = {
        role: "assistant",
        content: [{ type: "tool_use", id: "a", name: "t", arguments: {} }],
      };
      const long = Array.from({ length: 150 }, () => call);
      const first = [
        userText("old"),
        asked(2),
        assistantText("so"),
        call,
        assistantText("two"),
        call,
      ];
      await turnWith("om_1", { history: first, context: { keep: 0, summary } });
      await turnWith("om_2", {
        history: [asked(3), ...long, asked(5), userText("joined"), assistantText("five")],
      });
      const answers = [1, 2, 3, 4, 5, 6].map(async (seq) => await store.answerTo(session, seq));
      expect(await Promise.all(answers)).toEqual([
        undefined,
        "two",
        undefined,
        undefined,
        "five",
        undefined,
      ]);
      expect(await store.answerTo("cli_app.oc_unknown.main", 2)).toBeUndefined();
    });

    it("a second summary replaces the first", async () => {
      await turnWith("om_1", { history: four, context: { keep: 1, summary } });
      await turnWith("om_2", {
        history: [userText("5")],
        context: { keep: 1, summary: userText("both") },
      });
      expect(await turnWith("om_3", {})).toEqual([userText("both"), userText("5")]);
    });

    it("a context may keep more than there is", async () => {
      await turnWith("om_1", { history: four, context: { keep: 99, summary } });
      expect(await turnWith("om_2", {})).toEqual([summary, ...four]);
    });

    it("a turn that is compacted in the middle continues from the new context after a crash", async () => {
      const { wakeGen } = await store.append(messageOf(session, "om_1"));
      const first = await mustClaim(store, session, wakeGen);
      await saveAs(store, first, { mode: "continue", history: four });
      await saveAs(store, first, {
        mode: "continue",
        history: [userText("5")],
        context: { keep: 2, summary },
      });
      const second = await mustClaim(store, session, wakeGen);
      expect(second.history).toEqual([summary, assistantText("4"), userText("5")]);
    });

    it("a fenced write changes no context", async () => {
      const { wakeGen } = await store.append(messageOf(session, "om_1"));
      const old = await mustClaim(store, session, wakeGen);
      await saveAs(store, old, { mode: "continue", history: four });
      await mustClaim(store, session, wakeGen);
      const context = { keep: 0, summary };
      expect(await saveAs(store, old, { mode: "continue", context })).toEqual({ state: "fenced" });
      expect(await commitOf(store, old, { context })).toEqual({ state: "fenced" });
      expect((await mustClaim(store, session, wakeGen)).history).toEqual(four);
    });

    it("holds a copy of the summary", async () => {
      const changing = userText("before");
      await turnWith("om_1", { history: four, context: { keep: 0, summary: changing } });
      changing.content.pop();
      (await turnWith("om_2", {})).pop();
      expect(await turnWith("om_3", {})).toEqual([userText("before")]);
    });

    it("any order of contexts shows the last summary and the messages since", async () => {
      let run = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(writtenTurn, { minLength: 1, maxLength: 12 }), async (turns) => {
          run += 1;
          const key = `${session}-${run}`;
          const all: Message[] = [];
          let seen: Message[] = [];
          for (const [number, turn] of turns.entries()) {
            const { claimed, writes } = await runTurn(store, { key, number, turn });
            for (const each of claimed) expect(each).toEqual(seen);
            for (const write of writes) {
              all.push(...write.history);
              seen = contextAfter(all, seen, write);
            }
          }
          expect(await store.history(key)).toEqual(all);
        }),
        { numRuns: 40 },
      );
    });
  });
}
