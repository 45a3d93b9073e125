import { afterEach, expect, it } from "vitest";
import type { ReplyView } from "@larkline/protocol/reply-view";
import type { OutboxRecord } from "@larkline/store";
import { startWorld, testApp, type FeishuWorld } from "./feishu.fixture.ts";

const { appId } = testApp;
const worlds: FeishuWorld[] = [];

afterEach(async () => {
  await Promise.all(worlds.splice(0).map(async (started) => await started.close()));
});

/** The reply of a turn, as a worker stores it. */
function replyTo(here: FeishuWorld, id: string, shown: "card" | "text"): OutboxRecord {
  const view: ReplyView = {
    v: 1,
    language: "en",
    state: "answered",
    thinking: "",
    tools: [],
    earlierTools: 0,
    answer: id,
    footer: {},
  };
  return {
    v: 1,
    id,
    uuid: id,
    session: `${appId}.${here.direct}`,
    target: { app: appId, chatId: here.direct, messageId: "", inThread: false },
    text: id,
    ...(shown === "card" ? { view } : {}),
    createdAtMs: Date.now(),
    attempts: 0,
    uncertainSinceMs: 0,
  };
}

it("sends its own notices and plain replies in order, and leaves a reply on cards to the workers at once", async () => {
  const here = await startWorld();
  worlds.push(here);
  const { store } = here.ingress;
  const session = `${appId}.${here.direct}`;
  const stored = Promise.withResolvers<void>();
  const action = { kind: "hold", until: stored.promise } as const;
  here.platform.faults.add({ match: { path: /reply$/ }, times: 1, action });
  await here.say("/help");
  // Meanwhile a worker commits: the outbox is ingress's to send.
  expect(await store.outbox.push(replyTo(here, "plain", "text"), "om_plain")).toEqual({
    stored: true,
  });
  expect(await store.outbox.push(replyTo(here, "typed", "card"), "om_typed")).toEqual({
    stored: true,
  });
  stored.resolve();
  await here.untilSaid(here.direct, 2);
  await expect.poll(async () => await store.dueOutboxes(Date.now(), 10)).toEqual([session]);
  expect(here.said(here.direct).map(({ text }) => text.slice(0, 5))).toEqual(["Just ", "plain"]);

  // The next notice finds it at the head and leaves it there.
  await here.say("/status");
  await expect
    .poll(async () => (await store.outbox.lease(session))?.record)
    .toMatchObject({ id: "typed", attempts: 0 });
  await here.ingress.close();
  expect(here.said(here.direct)).toHaveLength(2);
});

it("an order whose answer waits behind another one is an order, and no duplicate", async () => {
  const here = await startWorld();
  worlds.push(here);
  const ordered = Promise.withResolvers<void>();
  const action = { kind: "hold", until: ordered.promise } as const;
  here.platform.faults.add({ match: { path: /reply$/ }, times: 1, action });
  await here.say("/help");
  await here.say("/status");
  ordered.resolve();
  await here.untilSaid(here.direct, 2);
  const counted = await here.ingress.metrics.text();
  expect(counted).toMatch(/larkline_ingress_messages_total\{[^}]*outcome="command"[^}]*\} 2/);
  expect(counted).not.toContain('outcome="duplicate"');
});
