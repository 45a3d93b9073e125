import type { PermissionRule } from "@larkline/protocol/approval";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { PermissionRules } from "./permission-rules.ts";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import { approvalIdOf, farFutureMs } from "./suite-samples.ts";

const boss = { id: "ou_boss", name: '王 "老板"' };

function ruleOf(number: number, fields: Partial<PermissionRule> = {}): PermissionRule {
  return {
    v: 1,
    id: approvalIdOf(number),
    app: "cli_app",
    chatId: "oc_chat",
    tool: "shell",
    pattern: "git status*",
    author: boss,
    createdAtMs: 1_700_000_000_000 + number,
    expiresAtMs: farFutureMs,
    ...fields,
  };
}

/** What every PermissionRules promises. */
export function describePermissionRules(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: permission rules`, () => {
    let harness: SessionStoreHarness;
    let rules: PermissionRules;
    let elsewhere: PermissionRules;

    beforeEach(async () => {
      harness = await makeHarness({});
      ({ rules } = harness);
      elsewhere = harness.elsewhere.rules;
    });
    afterEach(() => harness.close());

    it("hold in their chat, whole, for every process", async () => {
      const rule = ruleOf(1, { person: "ou_user", pattern: '你好 "*"\n' });
      await rules.add(rule);
      expect(await elsewhere.inForce("cli_app", "oc_chat")).toEqual([rule]);
      expect(await elsewhere.inForce("cli_app", "oc_other")).toEqual([]);
      expect(await elsewhere.inForce("cli_other", "oc_chat")).toEqual([]);
      expect(await elsewhere.list("cli_other")).toEqual([]);
    });

    it("are listed oldest first, of one chat or of the app", async () => {
      for (const number of [3, 1, 2]) await rules.add(ruleOf(number));
      await rules.add(ruleOf(4, { chatId: "oc_other", createdAtMs: 1 }));
      expect(await rules.inForce("cli_app", "oc_chat")).toEqual([ruleOf(1), ruleOf(2), ruleOf(3)]);
      expect((await rules.list("cli_app")).map(({ id }) => id)).toEqual(
        [4, 1, 2, 3].map(approvalIdOf),
      );
    });

    it("are many without getting lost", async () => {
      const numbers = Array.from({ length: 1_200 }, (_, i) => i);
      await Promise.all(numbers.map((number) => rules.add(ruleOf(number))));
      expect((await rules.inForce("cli_app", "oc_chat")).map(({ id }) => id)).toEqual(
        numbers.map(approvalIdOf),
      );
      expect(await rules.list("cli_app")).toHaveLength(numbers.length);
    });

    it("stay as they were added first", async () => {
      await rules.add(ruleOf(1));
      await elsewhere.add(ruleOf(1, { pattern: "*" }));
      expect(await rules.list("cli_app")).toEqual([ruleOf(1)]);
    });

    it("end with their time", async () => {
      await rules.add(ruleOf(1, { expiresAtMs: harness.now() + 20 }));
      await rules.add(ruleOf(2));
      await harness.advance(20);
      expect(await rules.inForce("cli_app", "oc_chat")).toEqual([ruleOf(2)]);
      expect(await rules.list("cli_app")).toEqual([ruleOf(2)]);
      expect(await rules.revoke("cli_app", approvalIdOf(1), boss)).toBeUndefined();
    });

    it("are revoked once, for every process, and returned as they were", async () => {
      await rules.add(ruleOf(1));
      await rules.add(ruleOf(2));
      const revoked = await Promise.all([
        rules.revoke("cli_app", approvalIdOf(1), boss),
        elsewhere.revoke("cli_app", approvalIdOf(1), boss),
      ]);
      expect(revoked.filter((rule) => rule !== undefined)).toEqual([ruleOf(1)]);
      expect(await elsewhere.inForce("cli_app", "oc_chat")).toEqual([ruleOf(2)]);
      expect(await elsewhere.list("cli_app")).toEqual([ruleOf(2)]);
    });

    it("do not come back when they are added again after that", async () => {
      await rules.add(ruleOf(1));
      await rules.revoke("cli_app", approvalIdOf(1), boss);
      await elsewhere.add(ruleOf(1));
      expect(await rules.inForce("cli_app", "oc_chat")).toEqual([]);
      expect(await rules.list("cli_app")).toEqual([]);
    });

    it("that are unknown, or of another app, are not revoked", async () => {
      await rules.add(ruleOf(1));
      expect(await rules.revoke("cli_other", approvalIdOf(1), boss)).toBeUndefined();
      expect(await rules.revoke("cli_app", approvalIdOf(2), boss)).toBeUndefined();
      expect(await rules.list("cli_app")).toEqual([ruleOf(1)]);
    });

    it("are found by the person who left them or whom they are about, also when they are over, and forgotten then", async () => {
      await rules.add(ruleOf(1, { author: { id: "ou_ann", name: "Ann" } }));
      await rules.add(ruleOf(2, { person: "ou_ann" }));
      await rules.add(ruleOf(3, { person: "ou_ben" }));
      await rules.add(ruleOf(4, { app: "cli_other", person: "ou_ann" }));
      await rules.revoke("cli_app", approvalIdOf(1), boss);
      const theirs = await elsewhere.ofPerson("cli_app", "ou_ann");
      expect(theirs.map(({ id }) => id).toSorted()).toEqual([approvalIdOf(1), approvalIdOf(2)]);
      for (const rule of theirs) await rules.forget(rule);
      expect(await rules.ofPerson("cli_app", "ou_ann")).toMatchObject([{ id: approvalIdOf(2) }]);
      await rules.revoke("cli_app", approvalIdOf(2), boss);
      for (let round = 0; round < 2; round += 1) {
        for (const rule of theirs) await rules.forget(rule);
      }
      expect(await rules.ofPerson("cli_app", "ou_ann")).toEqual([]);
      expect(await rules.ofPerson("cli_other", "ou_ann")).toHaveLength(1);
    });

    it("approvals of one kind are counted, each once, by all processes together", async () => {
      const kind = "oc_chat\nshell\ngit status*\nou_user";
      expect(await rules.approvedAgain("cli_app", kind, approvalIdOf(1))).toBe(1);
      expect(await elsewhere.approvedAgain("cli_app", kind, approvalIdOf(2))).toBe(2);
      expect(await elsewhere.approvedAgain("cli_app", kind, approvalIdOf(1))).toBe(2);
      expect(await rules.approvedAgain("cli_app", "another", approvalIdOf(1))).toBe(1);
      expect(await rules.approvedAgain("cli_other", kind, approvalIdOf(1))).toBe(1);
      const counts = await Promise.all(
        [3, 4, 5, 6].map((n) => rules.approvedAgain("cli_app", kind, approvalIdOf(n))),
      );
      expect(counts.toSorted()).toEqual([3, 4, 5, 6]);
    });
  });
}
