import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { MakeSessionStore, SessionStoreHarness } from "./session-store-harness.ts";
import {
  approvalOf,
  commitOf,
  messageOf,
  mustClaim,
  outboxRecord,
  saveAs,
  suspendOn,
} from "./suite-samples.ts";

/** Finding sessions. */
export function describeSessionIndex(name: string, makeHarness: MakeSessionStore): void {
  describe(`${name}: session index`, () => {
    let harness: SessionStoreHarness;

    beforeEach(async () => {
      harness = await makeHarness({});
    });
    afterEach(() => harness.close());

    const begin = async (session: string, person = "ou_user") => {
      const message = messageOf(session, `om_${session}`, { sender: { id: person } });
      const { wakeGen } = await harness.store.append(message);
      return await mustClaim(harness.store, session, wakeGen);
    };

    it("knows who is queued, runs, waits for tools or people, or has something to send", async () => {
      const { store, index } = harness;
      await store.append(messageOf("cli_app.queued", "om_1"));
      await begin("cli_app.running");
      await suspendOn(store, await begin("cli_app.tools"), "c1");
      const asking = await begin("cli_app.people");
      await saveAs(store, asking, {
        mode: "suspend",
        approvals: [approvalOf("cli_app.people", 1)],
      });
      await commitOf(store, await begin("cli_app.unsent"), {
        outbox: outboxRecord("cli_app.unsent", "r1"),
      });
      await commitOf(store, await begin("cli_app.idle"));
      const names = ["people", "queued", "running", "tools", "unsent"];
      expect((await index.busy(100)).sort()).toEqual(names.map((one) => `cli_app.${one}`));
      expect(await index.busy(2)).toHaveLength(2);
    });

    it("lists those that finished a turn last, all or those of one chat", async () => {
      const { store, index } = harness;
      for (const session of ["cli_app.oc_1", "cli_app.oc_2", "cli_app.oc_1.om_root"]) {
        await commitOf(store, await begin(session));
        await harness.advance(5);
      }
      expect((await index.recent(2)).map(({ session }) => session)).toEqual([
        "cli_app.oc_1.om_root",
        "cli_app.oc_2",
      ]);
      const beginning = async (...prefixes: string[]) =>
        (await index.recent(10, prefixes)).map(({ session }) => session);
      expect(await beginning("cli_app.oc_1")).toEqual(["cli_app.oc_1.om_root", "cli_app.oc_1"]);
      expect(await beginning("oc_2", "cli_app.oc_2", "api.oc_2")).toEqual(["cli_app.oc_2"]);
    });

    it("finds where a person has written", async () => {
      const { index } = harness;
      await begin("cli_app.oc_1", "ou_ann");
      await begin("cli_app.oc_2", "ou_ann");
      await begin("cli_app.oc_3", "ou_anna");
      expect((await index.ofPerson("ou_ann", 10)).sort()).toEqual(["cli_app.oc_1", "cli_app.oc_2"]);
      expect(await index.ofPerson("ou_nobody", 10)).toEqual([]);
    });

    it("shows what a session has not sent", async () => {
      const { store, index } = harness;
      await commitOf(store, await begin("cli_app.oc_1"), {
        outbox: outboxRecord("cli_app.oc_1", "r1"),
      });
      expect(await index.unsent("cli_app.oc_1", 10)).toEqual([outboxRecord("cli_app.oc_1", "r1")]);
      expect(await index.unsent("cli_app.oc_2", 10)).toEqual([]);
    });
  });
}
