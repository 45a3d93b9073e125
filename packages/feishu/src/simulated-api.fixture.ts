import { startFeishuSimulator } from "@larkline/simulator";
import { openTestStores } from "@larkline/store/testing";
import { onTestFinished } from "vitest";
import { FeishuApi, type FeishuApiOptions } from "./feishu-api.ts";
import { FeishuError } from "./transport/error.ts";

// For tests: one app, a person and a group on the simulated platform, over HTTP.

const appId = "cli_0123456789abcdef";
const appSecret = "s3cret-of-the-app";

const otherApp = {
  appId: "cli_fedcba9876543210",
  appSecret: "s3cret-of-another-app",
  name: "Other",
};

type SimulatorOptions = Parameters<typeof startFeishuSimulator>[0];

export interface SimulatedApiOptions {
  simulator?: Omit<SimulatorOptions, "apps">;
  /** Another bot is a member of every chat. */
  otherBot?: boolean;
  api?: Partial<FeishuApiOptions>;
}

export async function simulatedApi(options: SimulatedApiOptions = {}) {
  const simulator = await startFeishuSimulator({
    apps: [
      { appId, appSecret, name: "Larkline" },
      ...(options.otherBot === true ? [otherApp] : []),
    ],
    limits: "off",
    ...options.simulator,
  });
  onTestFinished(() => simulator.close());
  const person = simulator.addUser({ name: "Ann" });
  const { chatId } = simulator.addChat({ type: "group", name: "Team", members: [person.openId] });
  const connect = (more: Partial<FeishuApiOptions> = {}): FeishuApi => {
    const api = new FeishuApi({
      appId,
      appSecret,
      domain: simulator.url,
      tokenCache: openTestStores().tokens,
      // The process in which the simulator is, too, may stand still for seconds.
      timeoutMs: 60_000,
      retry: { minDelayMs: 5, maxDelayMs: 1_500 },
      ...options.api,
      ...more,
    });
    onTestFinished(() => api.close());
    return api;
  };
  const say = async (text: string): Promise<string> =>
    (await simulator.sendMessage({ appId, chatId, from: person.openId, text })).messageId;
  return { simulator, appId, person, chatId, connect, api: connect(), say };
}

/** The FeishuError that a call rejects with. */
export async function failureOf(promise: Promise<unknown>): Promise<FeishuError> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof FeishuError)) throw new Error("expected a FeishuError", { cause: error });
  return error;
}

/** The same object with some of its methods replaced; the others run on the object itself. */
export function replacing<T extends object>(target: T, methods: Partial<T>): T {
  return new Proxy(target, {
    get: (object, name) => {
      const member: unknown = Reflect.get(methods, name) ?? Reflect.get(object, name);
      return typeof member === "function" ? member.bind(object) : member;
    },
  });
}
