import { patientClock } from "@larkline/testkit";
import { expect, onTestFinished, test, vi } from "vitest";
import { startFeishuSimulator } from "../index.ts";
import { connectTestClient } from "../open-api.fixture.ts";
import { type ReceivedWebhook, startTestWebhook } from "../webhook.fixture.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "s" };

/** An app that is subscribed to a form; `isTaken` decides which events it acknowledges. */
async function formWorld(isTaken: (told: string) => boolean) {
  const told: string[] = [];
  const webhook = await startTestWebhook((request) => {
    const line = lineOf(request);
    told.push(line);
    return { status: isTaken(line) ? 200 : 500 };
  });
  const simulator = await startFeishuSimulator({
    apps: [{ ...app, webhookUrl: webhook.url }],
    retryDelaysMs: [1, 1],
    clock: patientClock,
  });
  onTestFinished(async () => {
    await simulator.close();
    await webhook.close();
  });
  const { approvals } = simulator.work;
  const definitionCode = approvals.addDefinition();
  const { call } = await connectTestClient(simulator.url, app);
  const path = `/open-apis/approval/v4/approvals/${definitionCode}`;
  const [ann, bob] = ["Ann", "Bob"].map((name) => simulator.addUser({ name }).openId);
  const ask = (name: string) =>
    approvals.addApproval({
      initiator: ann ?? "",
      name,
      form: [],
      approvers: [bob ?? ""],
      definitionCode,
    });
  return {
    told,
    ask,
    approvals,
    subscribe: async (how: string) => await call("POST", `${path}/${how}`),
  };
}

function lineOf({ body }: ReceivedWebhook): string {
  const event = body["event"] as Record<string, unknown>; // of the 1.0 envelope
  return `${String(event["type"])} ${String(event["status"])} of ${String(event["instance_code"])}`;
}

test("apps that have subscribed to a form get its events, once asked for", async () => {
  const { told, ask, subscribe } = await formWorld(() => true);
  ask("before");
  expect((await subscribe("subscribe")).code).toBe(0);
  expect((await subscribe("subscribe")).code).toBe(1390007);
  const { instanceCode } = ask("Leave");
  await vi.waitFor(() => expect(told).toHaveLength(2));
  expect(told).toEqual([
    `approval_instance PENDING of ${instanceCode}`,
    `approval_task PENDING of ${instanceCode}`,
  ]);
  expect((await subscribe("unsubscribe")).code).toBe(0);
  ask("after");
  expect((await subscribe("unsubscribe")).code).toBe(1390007);
  expect(told).toHaveLength(2);
});

test("an event that is not acknowledged holds up those of its approval, and of no other", async () => {
  let refused = "";
  let tries = 0;
  const { told, ask, subscribe } = await formWorld((line) => {
    if (line !== refused) return true;
    tries += 1;
    return tries === 3;
  });
  await subscribe("subscribe");
  const { instanceCode: first } = ask("Leave");
  refused = `approval_instance PENDING of ${first}`;
  const { instanceCode: other } = ask("Travel");
  await vi.waitFor(() => expect(told).toHaveLength(6));
  expect(told.filter((line) => line.endsWith(first))).toEqual([
    refused,
    refused,
    refused,
    `approval_task PENDING of ${first}`,
  ]);
  expect(told.filter((line) => line.endsWith(other))).toEqual([
    `approval_instance PENDING of ${other}`,
    `approval_task PENDING of ${other}`,
  ]);
});
