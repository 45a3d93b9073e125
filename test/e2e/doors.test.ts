import { createHmac } from "node:crypto";
import type { ModelScript } from "@larkline/testkit";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { startSystem, type System } from "../system/system.ts";

const chatId = "oc_00000000000000000000000000000001";
const secret = "s".repeat(32);
let system: System;

const script: ModelScript = ({ messages }) => ({
  text: `read: ${messages.findLast(({ role }) => role === "user")?.text ?? ""}`,
});

beforeAll(async () => {
  const triggers = { build: { chat: chatId, task: "Say what failed." } };
  const env = { TRIGGER_SECRET_BUILD: secret };
  system = await startSystem({ script, config: { doors: { triggers } }, env });
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
