import { createHmac } from "node:crypto";
import type { ModelScript } from "@larkline/testkit";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { startSystem, type System } from "../system/system.ts";

const chatId = "oc_00000000000000000000000000000001";
const secret = "s".repeat(32);
const [leave, travel] = [
  "7C468A54-8745-2245-9675-08B7C63E7A85",
  "E3254848-D172-4169-B03E-744E7CD11F06",
];
let system: System;

const script: ModelScript = ({ messages }) => ({
  text: `read: ${messages.findLast(({ role }) => role === "user")?.text ?? ""}`,
});

beforeAll(async () => {
  const triggers = { build: { chat: chatId, task: "Say what failed." } };
  const approvals = {
    leave: { code: leave, chat: chatId, task: "Say who is away." },
    travel: { code: travel, task: "Check the sum." },
  };
  const env = { TRIGGER_SECRET_BUILD: secret };
  system = await startSystem({
    script,
    config: { doors: { triggers, comments: true, tasks: true, approvals } },
    env,
  });
  system.feishu.addChat({ type: "group", chatId, members: [system.appId] });
});
afterAll(async () => await system.close());

it("a signed request is answered once in the chat of its trigger, however often it is sent", async () => {
  const body = JSON.stringify({ failed: "lint" });
  const at = `${Math.floor(Date.now() / 1_000)}`;
  const signature = createHmac("sha256", secret).update(`${at}.${body}`).digest("hex");
  const send = async () =>
    await fetch(`${system.ingresses[0]?.url}/v1/triggers/build`, {
      method: "POST",
      body,
      headers: { "x-larkline-timestamp": at, "x-larkline-signature": `v1=${signature}` },
    });
  const sent = await Promise.all([send(), send(), send()]);
  expect(sent.map(({ status }) => status)).toEqual([202, 202, 202]);
  const answers = () => system.feishu.messages(chatId).map((message) => JSON.stringify(message));
  await vi.waitFor(() => expect(answers().join("\n")).toContain("lint"), {
    timeout: 60_000,
    interval: 50,
  });
  expect(answers()).toHaveLength(1);
  expect(answers()[0]).toContain("Say what failed.");
});

it("a comment that mentions the bot is answered once in its thread, and one about a whole document beside it", async () => {
  const { feishu, appId } = system;
  const ann = feishu.addUser({ name: "Ann" }).openId;
  const { docs } = feishu.work;
  const { documentId } = docs.addDocument({
    owner: ann,
    title: "Plan",
    markdown: "Ship on Monday.",
  });
  feishu.work.share(documentId, appId, "view");
  const bot = feishu.apps.find((app) => app.appId === appId);
  const about = { documentId, by: ann, mentions: [bot?.openId ?? ""] };
  const passage = docs.comment({ ...about, text: "Which Monday?", quote: "Ship on Monday." });
  const whole = docs.comment({ ...about, text: "Is it good?" });
  // The first answer takes effect, and its acknowledgement is lost.
  const action = { kind: "lose_response" } as const;
  feishu.faults.add({ match: { path: /\/replies$/ }, times: 1, action });
  const eventType = "drive.notice.comment_add_v1";
  for (const { event } of [passage, whole, passage, whole]) {
    const { outcome } = await feishu.sendEvent({ appId, eventType, event });
    expect(outcome).toBe("acknowledged");
  }
  const answers = () => feishu.work.changes.filter(({ kind }) => kind === "document.comment");
  await vi.waitFor(() => expect(answers()).toHaveLength(2), { timeout: 60_000, interval: 50 });
  // The next answer of the thread is sent when the first one has been.
  const { commentId } = passage.comment;
  const { event } = docs.comment({ ...about, text: "And the hour?", commentId });
  await feishu.sendEvent({ appId, eventType, event });
  await vi.waitFor(() => expect(answers()).toHaveLength(3), { timeout: 60_000, interval: 50 });
  expect(passage.comment.replies.map(({ by }) => by)).toEqual([ann, appId, ann, appId]);
  expect(passage.comment.replies[1]?.text).toContain("Which Monday?");
  expect(whole.comment.replies).toHaveLength(1);
  const beside = docs.documents.get(documentId)?.comments.at(-1);
  expect(beside?.replies[0]).toMatchObject({ by: appId, text: expect.stringContaining("good?") });
});

it("a task that is given to the bot is commented on and completed once, and once more where it is open again", async () => {
  const { feishu, appId } = system;
  const ann = feishu.addUser({ name: "Ann" }).openId;
  const { tasks } = feishu.work;
  await vi.waitFor(() => expect(tasks.subscribed.has(appId)).toBe(true), { timeout: 60_000 });
  const { task } = await tasks.giveTask({ creator: ann, summary: "Count", assignees: [appId] });
  await vi.waitFor(() => expect(task.completedAt).toBeGreaterThan(0), {
    timeout: 60_000,
    interval: 50,
  });
  const [begun, answer] = task.comments.map(({ content }) => content);
  expect(begun).toBe("收到，开始处理。");
  expect(answer).toMatch(/Count$/);
  await tasks.setDone(task.guid, false);
  expect(task.completedAt).toBe(0);
  await vi.waitFor(() => expect(task.completedAt).toBeGreaterThan(0), {
    timeout: 60_000,
    interval: 50,
  });
  expect(task.comments).toHaveLength(4);
  const changes = feishu.work.changes.filter(({ kind }) => kind === "task.change");
  expect(changes).toHaveLength(2);
});

it("an approval of a form is a run in its chat, one that waits for a person a run as theirs, each once", async () => {
  const { feishu, appId } = system;
  const [ann, bob] = ["Ann", "Bob"].map((name) => feishu.addUser({ name }).openId);
  if (ann === undefined || bob === undefined) return expect.fail("two people");
  const { chatId: own } = feishu.addChat({ type: "p2p", members: [bob, appId] });
  const { approvals } = feishu.work;
  for (const code of [leave, travel]) approvals.addDefinition(code);
  // Ingress subscribes the app when it starts.
  await system.start("ingress");
  for (const code of [leave, travel]) {
    await vi.waitFor(() => expect(approvals.subscribed(code)).toEqual([appId]), {
      timeout: 60_000,
    });
  }
  const ask = (name: string, definitionCode: string) =>
    approvals.addApproval({ initiator: ann, name, form: [], approvers: [bob], definitionCode });
  const { instanceCode: away } = ask("Leave", leave);
  const { instanceCode: journey } = ask("Travel", travel);
  const answersIn = (chat: string): string[] =>
    feishu.messages(chat).map((message) => JSON.stringify(message));
  const isAnswered = (chat: string, instance: string): void => {
    const about = answersIn(chat).filter((text) => text.includes(instance));
    expect(about).toHaveLength(1);
  };
  await vi.waitFor(() => isAnswered(chatId, away), { timeout: 60_000, interval: 50 });
  await vi.waitFor(() => isAnswered(own, journey), { timeout: 60_000, interval: 50 });
  expect(answersIn(chatId).join("\n")).toContain("Say who is away.");
  expect(answersIn(own).join("\n")).toContain("Check the sum.");
  expect(answersIn(chatId).join("\n")).not.toContain(journey);
  expect(answersIn(own).join("\n")).not.toContain(away);
});
