import { turnIdOf } from "@larkline/protocol";
import type { ToolOutcome } from "@larkline/protocol/tool";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import {
  commitOf,
  messageOf,
  mustClaim,
  openCalls,
  outboxRecord,
  saveAs,
  suspendOn,
  userText,
} from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const succeeded: ToolOutcome = { ok: true, result: 1 };

function times<T>(count: number, make: (i: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, i) => make(i)));
}

function isDefined<T>(value: T | undefined): value is T {
  return value !== undefined;
}

/** Operations that arrive at the same moment, in whatever order the adapter takes them. */
export function describeRaces(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: races`, () => {
    let store: SessionStore;
    let harness: SessionStoreHarness;

    beforeEach(async () => {
      harness = await makeHarness({});
      ({ store } = harness);
    });
    afterEach(() => harness.close());

    it("AL-45: messages at once get each its position and wake once", async () => {
      const results = await times(40, (i) => store.append(messageOf(session, `om_${i}`)));
      expect(results.map(({ seq }) => seq).sort((a, b) => a - b)).toEqual(
        Array.from({ length: 40 }, (_, i) => i + 1),
      );
      expect(results.map(({ wakeGen }) => wakeGen).filter(isDefined)).toEqual([1]);
    });

    it("AL-46: deliveries of one message at once store it once", async () => {
      const results = await times(20, () => store.append(messageOf(session, "om_1")));
      expect(results.filter(({ result }) => result === "accepted")).toHaveLength(1);
      expect(new Set(results.map(({ seq }) => seq))).toEqual(new Set([1]));
      expect(await store.summary(session)).toMatchObject({ waiting: 1, gen: 1 });
    });

    it("of wake-ups with different generations one takes the session", async () => {
      await store.append(messageOf(session, "om_1"));
      const claims = await times(20, (i) => store.claim(session, i + 1, `w${i}`));
      expect(claims.filter(isDefined)).toHaveLength(1);
    });

    it("of workers that run the same wake-up one may write", async () => {
      await store.append(messageOf(session, "om_1"));
      const claims = (await times(10, () => store.claim(session, 1, "w"))).filter(isDefined);
      expect(new Set(claims.map(({ epoch }) => epoch)).size).toBe(claims.length);
      const saved = await Promise.all(
        claims.map((claim) => saveAs(store, claim, { mode: "continue" })),
      );
      expect(saved.filter(({ state }) => state !== "fenced")).toHaveLength(1);
    });

    it("workers that claim at once read the whole history each", async () => {
      await store.append(messageOf(session, "om_1"));
      const first = await mustClaim(store, session, 1);
      await saveAs(store, first, { mode: "continue", history: [userText("1"), userText("2")] });
      const second = await mustClaim(store, session, 1);
      await saveAs(store, second, { mode: "continue", history: [userText("3")] });
      for (const claim of await times(10, () => mustClaim(store, session, 1))) {
        expect(claim.history).toEqual([userText("1"), userText("2"), userText("3")]);
      }
    });

    it("of messages at once no more are taken than the caller allows", async () => {
      await store.append(messageOf(session, "om_1"));
      const results = await times(10, (i) =>
        store.append(messageOf(session, `om_next_${i}`), { maxWaiting: 3 }),
      );
      const accepted = results.filter(({ result }) => result === "accepted");
      expect(accepted.map(({ ahead }) => ahead).sort()).toEqual([1, 2]);
      expect(
        results.filter(({ result, head }) => result === "full" && head?.seq === 1),
      ).toHaveLength(8);
    });

    it("messages that come while a turn takes others in wait after it, and none is lost", async () => {
      for (let i = 1; i <= 5; i += 1) await store.append(messageOf(session, `om_${i}`));
      const claim = await mustClaim(store, session, 1);
      const [saved] = await Promise.all([
        saveAs(store, claim, { mode: "continue", absorbed: [2, 4] }),
        ...[6, 7, 8].map((i) => store.append(messageOf(session, `om_${i}`))),
      ]);
      expect(saved).toMatchObject({ state: "running" });
      expect((await store.waiting(session, 10)).map(({ seq }) => seq)).toEqual([3, 5, 6, 7, 8]);
    });

    it("a message that is taken back while a turn takes it in is dropped, or the turn learns of it", async () => {
      for (let i = 1; i <= 3; i += 1) await store.append(messageOf(session, `om_${i}`));
      const claim = await mustClaim(store, session, 1);
      const turnId = turnIdOf(session, 2);
      const [cancelled] = await Promise.all([
        store.cancel(session, { turnId, reason: "recalled" }),
        saveAs(store, claim, { mode: "continue", absorbed: [2] }),
      ]);
      expect(cancelled).toEqual({ accepted: true });
      expect((await store.waiting(session, 10)).map(({ seq }) => seq)).toEqual([3]);
      const learned = (await mustClaim(store, session, 1)).control.length;
      const dropped = (await harness.events.read(session, 0, 10)).length;
      expect(learned + dropped).toBe(1);
    });

    it("AL-47: of commits of one turn one counts", async () => {
      await store.append(messageOf(session, "om_1"));
      await store.append(messageOf(session, "om_2"));
      const claim = await mustClaim(store, session, 1);
      const commits = await times(10, () =>
        commitOf(store, claim, { more: true, outbox: outboxRecord(session, "r1") }),
      );
      expect(commits.filter(({ state }) => state !== "fenced")).toHaveLength(1);
      expect(await store.summary(session)).toMatchObject({ state: "running", waiting: 1 });
    });

    it("of answers to one call one is taken", async () => {
      await store.append(messageOf(session, "om_1"));
      await suspendOn(store, await mustClaim(store, session, 1), "c1");
      const delivered = await times(10, (i) =>
        store.deliver(session, "c1", { ok: true, result: i }),
      );
      expect(delivered.filter(({ accepted }) => accepted)).toHaveLength(1);
      expect((await mustClaim(store, session, 2)).control).toHaveLength(1);
    });

    it("answers of a batch at once wake once, and all arrive", async () => {
      await store.append(messageOf(session, "om_1"));
      const callIds = Array.from({ length: 20 }, (_, i) => `c${i}`);
      await suspendOn(store, await mustClaim(store, session, 1), ...callIds);
      const delivered = await Promise.all(
        callIds.map((callId) => store.deliver(session, callId, succeeded)),
      );
      expect(delivered.every(({ accepted }) => accepted)).toBe(true);
      expect(delivered.map(({ wakeGen }) => wakeGen).filter(isDefined)).toEqual([2]);
      expect((await mustClaim(store, session, 2)).control).toHaveLength(20);
    });

    it("an answer that crosses a suspension is either read or wakes", async () => {
      for (let round = 0; round < 30; round += 1) {
        const key = `${session}-${round}`;
        await store.append(messageOf(key, `${key}-om_1`));
        const claim = await mustClaim(store, key, 1);
        await saveAs(store, claim, { mode: "continue", open: openCalls("c1") });
        const early = round % 2 === 0 ? store.deliver(key, "c1", succeeded) : undefined;
        const saving = saveAs(store, claim, { mode: "suspend" });
        const delivered = await (early ?? store.deliver(key, "c1", succeeded));
        const saved = await saving;
        const isRead = saved.state === "running" && saved.control.length === 1;
        expect([isRead, delivered.wakeGen === 2].filter(Boolean)).toHaveLength(1);
      }
    });

    it("a message that crosses the end of a turn is either next or wakes", async () => {
      for (let round = 0; round < 30; round += 1) {
        const key = `${session}-${round}`;
        await store.append(messageOf(key, `${key}-om_1`));
        const claim = await mustClaim(store, key, 1);
        const early = round % 2 === 0 ? store.append(messageOf(key, `${key}-om_2`)) : undefined;
        const committing = commitOf(store, claim, { more: true });
        const appended = await (early ?? store.append(messageOf(key, `${key}-om_2`)));
        expect((await committing).state).toBe(appended.wakeGen === undefined ? "next" : "idle");
        expect(await store.summary(key)).toMatchObject({ waiting: 1 });
      }
    });

    it("of starts of a once call one runs it", async () => {
      await store.append(messageOf(session, "om_1"));
      await suspendOn(store, await mustClaim(store, session, 1), "c1");
      const begun = await times(10, () => store.begin(session, "c1", "once"));
      expect(begun.filter((each) => each === "run")).toHaveLength(1);
      expect(begun.filter((each) => each === "started_before")).toHaveLength(9);
    });

    it("of sweepers that heal a dead worker all name the same generation", async () => {
      await store.append(messageOf(session, "om_1"));
      await mustClaim(store, session, 1);
      const healed = await times(10, () => store.heal(session, 1));
      expect(new Set(healed)).toEqual(new Set([2]));
      expect(await mustClaim(store, session, 2)).toMatchObject({ ranBefore: true, failures: {} });
    });

    it("of senders one takes the outbox", async () => {
      const pushed = await times(10, (i) =>
        store.outbox.push(outboxRecord(session, `r${i}`), `r${i}`),
      );
      expect(pushed.filter(({ lease }) => lease !== undefined)).toHaveLength(1);
      const leased = await times(10, () => store.outbox.lease(session));
      expect(leased.filter(isDefined)).toHaveLength(0);
    });
  });
}
