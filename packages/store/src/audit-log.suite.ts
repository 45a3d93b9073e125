import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { AuditLog, AuditRecord } from "./audit-log.ts";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import type { SessionStore } from "./session-store.ts";
import type { Claim } from "./session-types.ts";
import {
  approvalIdOf,
  approvalOf,
  callFacts,
  commitOf,
  decisionOf,
  farFutureMs,
  messageOf,
  mustClaim,
  openCalls,
  saveAs,
  suspendOn,
} from "./suite-samples.ts";

const session = "cli_app.oc_chat.main";
const boss = { id: "ou_boss" };

async function collect(records: AsyncIterable<AuditRecord>): Promise<AuditRecord[]> {
  const all: AuditRecord[] = [];
  for await (const record of records) all.push(record);
  return all;
}

/** What every AuditLog promises, and what the stores write to it. */
export function describeAuditLog(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: audit log`, () => {
    let harness: SessionStoreHarness;
    let store: SessionStore;
    let audit: AuditLog;

    beforeEach(async () => {
      harness = await makeHarness({});
      ({ store, audit } = harness);
    });
    afterEach(() => harness.close());

    async function started(key = session, id = `om_${key}`): Promise<Claim> {
      const { wakeGen } = await store.append(messageOf(key, id));
      return await mustClaim(store, key, wakeGen);
    }

    /** All records, without their times. */
    async function written(): Promise<Omit<AuditRecord, "atMs">[]> {
      const records = await collect(audit.export(0, farFutureMs));
      return records.map(({ atMs, ...record }) => {
        expect(Math.abs(atMs - harness.now())).toBeLessThan(60_000);
        return record;
      });
    }

    it("has a call before it can run, when it starts, and how it ended", async () => {
      await suspendOn(store, await started(), "c1");
      expect(await written()).toEqual([
        { kind: "call_opened", session, callId: "c1", ...callFacts },
      ]);
      await store.begin(session, "c1", "once", { runner: "tools" });
      await store.deliver(session, "c1", { ok: true, result: "secret" }, { runner: "tools" });
      expect(await written()).toEqual([
        { kind: "call_opened", session, callId: "c1", ...callFacts },
        { kind: "call_started", session, callId: "c1", ...callFacts, runner: "tools" },
        { kind: "call_ended", session, callId: "c1", ...callFacts, runner: "tools", result: "ok" },
      ]);
    });

    it("keeps the timing of an answer for the session", async () => {
      await suspendOn(store, await started(), "c1");
      const timing = { queuedMs: 5, ranMs: 7 };
      await store.deliver(session, "c1", { ok: true, result: 1 }, { timing });
      const { control } = await mustClaim(store, session, 2);
      expect(control).toEqual([
        { type: "outcome", callId: "c1", outcome: { ok: true, result: 1 }, timing },
      ]);
    });

    it("tells errors and unknown outcomes apart", async () => {
      await suspendOn(store, await started(), "c1", "c2");
      await store.deliver(session, "c1", { ok: false, error: "no" });
      await store.deliver(session, "c2", { ok: false, error: "?", unknown: true });
      const ended = (await written()).filter(({ kind }) => kind === "call_ended");
      expect(ended).toMatchObject([
        { callId: "c1", result: "error" },
        { callId: "c2", result: "unknown" },
      ]);
      for (const record of ended) expect(record).not.toHaveProperty("runner");
    });

    it("has an attempt opened once, a repeated start each time, and only answers that counted", async () => {
      const claim = await started();
      await suspendOn(store, claim, "c1", "c2");
      await suspendOn(store, claim, "c1", "c2");
      await store.begin(session, "c1", "once");
      expect(await store.begin(session, "c1", "once")).toBe("started_before");
      await store.begin(session, "c2", "idempotent");
      await store.begin(session, "c2", "idempotent");
      await store.deliver(session, "c1", { ok: true, result: 1 });
      await store.deliver(session, "c1", { ok: true, result: 2 });
      expect(await store.begin(session, "c1", "pure")).toBe("closed");
      await suspendOn(store, await mustClaim(store, session, 2), "c1");
      expect((await written()).map(({ kind, callId }) => `${callId} ${kind}`)).toEqual([
        "c1 call_opened",
        "c2 call_opened",
        "c1 call_started",
        "c2 call_started",
        "c2 call_started",
        "c1 call_ended",
      ]);
    });

    it("has nothing of a worker that was replaced", async () => {
      const old = await started();
      await mustClaim(store, session, 1);
      await saveAs(store, old, {
        mode: "suspend",
        open: openCalls("c1"),
        approvals: [approvalOf(session, 1)],
      });
      await commitOf(store, old);
      expect(await written()).toEqual([]);
    });

    it("ends the calls that a turn leaves open, and forgets what it knew of them", async () => {
      const claim = await started();
      await suspendOn(store, claim, "c1", "c2", "c3");
      await store.begin(session, "c2", "once", { runner: "tools" });
      await store.deliver(session, "c3", { ok: true, result: 1 });
      await commitOf(store, claim);
      const ended = (await written()).filter(({ kind }) => kind === "call_ended");
      expect(
        ended.toSorted((one, other) => (one.callId ?? "").localeCompare(other.callId ?? "")),
      ).toEqual([
        { kind: "call_ended", session, callId: "c1", ...callFacts, result: "cancelled" },
        { kind: "call_ended", session, callId: "c2", ...callFacts, result: "unknown" },
        { kind: "call_ended", session, callId: "c3", ...callFacts, result: "ok" },
      ]);
      await store.deliver(session, "c1", { ok: true, result: 1 });
      expect((await written()).filter(({ kind }) => kind === "call_ended")).toHaveLength(3);
    });

    it("has each question, each person's word and what became of it, and no arguments", async () => {
      const deciders = { ...approvalOf(session, 1).deciders, count: 2 };
      const approval = approvalOf(session, 1, { deciders });
      await saveAs(store, await started(), { mode: "suspend", approvals: [approval] });
      for (const person of ["ou_a", "ou_a", "ou_b", "ou_c"]) {
        await harness.approvals.decide(session, approval.id, {
          ...decisionOf("approve", person),
          note: "why",
        });
      }
      const facts = {
        session,
        callId: "c1",
        app: "cli_app",
        tenant: "t_1",
        turnId: approval.turnId,
        tool: "deploy",
        userId: "ou_user",
        chatId: "oc_chat",
        argumentsHash: "c0ffee",
        approvalId: approval.id,
      };
      const records = await written();
      expect(records).toEqual([
        { kind: "approval_requested", ...facts },
        { kind: "approval_decided", ...facts, userId: "ou_a", result: "approve" },
        { kind: "approval_decided", ...facts, userId: "ou_b", result: "approve" },
        { kind: "approval_settled", ...facts, result: "approved" },
      ]);
      expect(JSON.stringify(records)).not.toMatch(/支付|why/);
    });

    it("has what became of unanswered questions", async () => {
      const claim = await started();
      const approvals = [1, 2, 3].map((number) => approvalOf(session, number));
      await saveAs(store, claim, { mode: "continue", approvals });
      await harness.approvals.settle(session, approvalIdOf(1), "undeliverable");
      await commitOf(store, claim);
      const settled = (await written()).filter(({ kind }) => kind === "approval_settled");
      expect(settled.map(({ result }) => result)).toEqual([
        "undeliverable",
        "cancelled",
        "cancelled",
      ]);
    });

    it("has rules that were added and revoked, each once", async () => {
      const rule = {
        v: 1 as const,
        id: approvalIdOf(1),
        app: "cli_app",
        chatId: "oc_chat",
        tool: "shell",
        pattern: "*",
        author: { id: "ou_author" },
        createdAtMs: 1,
        expiresAtMs: farFutureMs,
      };
      for (let i = 0; i < 2; i += 1) await harness.rules.add(rule);
      for (let i = 0; i < 2; i += 1) await harness.rules.revoke("cli_app", rule.id, boss);
      await harness.rules.add(rule);
      const facts = {
        app: "cli_app",
        chatId: "oc_chat",
        tool: "shell",
        ruleId: rule.id,
        approvalId: rule.id,
      };
      expect(await written()).toEqual([
        { kind: "rule_added", ...facts, userId: "ou_author" },
        { kind: "rule_revoked", ...facts, userId: "ou_boss" },
      ]);
    });

    it("takes records of others as they are", async () => {
      const record = {
        kind: "call_ended" as const,
        session,
        callId: "c1",
        ...callFacts,
        runner: "r",
        result: "ok",
      };
      await audit.append(record);
      await audit.append({ kind: "rule_added" });
      expect(await written()).toEqual([record, { kind: "rule_added" }]);
    });

    it("is exported by time over all sessions, from the first moment to before the last", async () => {
      const marks: number[] = [];
      for (let step = 0; step < 3; step += 1) {
        for (let each = 0; each < 12; each += 1) {
          await suspendOn(store, await started(`cli_app.oc_${step}_${each}`), `c${step}`);
        }
        await audit.append({ kind: "rule_added", callId: `c${step}` });
        // Records have the time of the server, which no test moves.
        await delay(3);
        marks.push(Date.now());
        await delay(3);
      }
      const [first = 0, second = 0] = marks;
      const records = await collect(audit.export(0, farFutureMs));
      expect(records).toHaveLength(39);
      expect(records.map(({ atMs }) => atMs)).toEqual(
        records.map(({ atMs }) => atMs).toSorted((a, b) => a - b),
      );
      expect(records.map(({ callId }) => callId)).toEqual(
        records.map(({ callId }) => callId).toSorted(),
      );
      const middle = await collect(audit.export(first, second));
      expect(middle.map(({ callId }) => callId)).toEqual(Array.from({ length: 13 }, () => "c1"));
      const from = records[20]?.atMs ?? 0;
      expect(await collect(audit.export(from, from + 1))).toContainEqual(records[20]);
      expect(await collect(audit.export(from, from))).toEqual([]);
      expect(await collect(audit.export(farFutureMs, farFutureMs + 1))).toEqual([]);
    });

    it("is exported page by page, all of it, and a reader may stop anywhere", async () => {
      const count = 450;
      for (let i = 0; i < count; i += 1) {
        await audit.append({ kind: "rule_added", ruleId: `r${i}` });
      }
      const expected = Array.from({ length: count }, (_, i) => `r${i}`);
      const records = await collect(audit.export(0, Number.POSITIVE_INFINITY));
      expect(records.map(({ ruleId }) => ruleId)).toEqual(expected);
      for await (const record of audit.export(0, farFutureMs)) {
        expect(record.ruleId).toBe("r0");
        break;
      }
    });
  });
}
