import { patientClock } from "@larkline/testkit";
import { onTestFinished } from "vitest";
import { startFeishuSimulator, type FeishuSimulator, type SimulatorOptions } from "./index.ts";
import { connectTestClient, type TestClient } from "./open-api.fixture.ts";
import { startTestWebhook, type ReceivedWebhook } from "./webhook.fixture.ts";

export const app = { appId: "cli_0123456789abcdef", appSecret: "secret" };
export const otherApp = { appId: "cli_fedcba9876543210", appSecret: "other", name: "Other" };

/** A person, a p2p chat and a group with the bot; the group has the other bot too. Events arrive in `received`. */
export interface PersonWorld {
  simulator: FeishuSimulator;
  client: TestClient;
  other: TestClient;
  ann: string;
  direct: string;
  group: string;
  received: ReceivedWebhook[];
  /** The `event` of the newest event of this type. */
  newest(eventType: string): Record<string, unknown>;
}

export async function personWorld(options: Partial<SimulatorOptions> = {}): Promise<PersonWorld> {
  const webhook = await startTestWebhook(() => ({}));
  const apps = [{ ...app, webhookUrl: webhook.url }, otherApp];
  const given = { limits: "off", clock: patientClock, ...options } as const;
  const simulator = await startFeishuSimulator({ apps, retryDelaysMs: [], ...given });
  onTestFinished(async () => {
    await simulator.close();
    await webhook.close();
  });
  const { openId: ann } = simulator.addUser({ name: "Ann" });
  return {
    simulator,
    client: await connectTestClient(simulator.url, app),
    other: await connectTestClient(simulator.url, otherApp),
    ann,
    direct: simulator.addChat({ type: "p2p", members: [ann, app.appId] }).chatId,
    group: simulator.addChat({ type: "group", members: [ann, app.appId, otherApp.appId] }).chatId,
    received: webhook.received,
    newest(eventType) {
      const found = webhook.received.findLast(({ body }) => typeOf(body) === eventType);
      if (found === undefined) throw new Error(`No event ${eventType} arrived`);
      return objectOf(found.body.event);
    },
  };
}

/** The type of a 2.0 or 1.0 event. */
export function typeOf(body: Record<string, unknown>): unknown {
  return body.schema === undefined ? objectOf(body.event).type : objectOf(body.header).event_type;
}

export function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
