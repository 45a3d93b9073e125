import { createHash } from "node:crypto";
import {
  type FeishuSimulator,
  startFeishuSimulator,
  type SimulatorOptions,
} from "@larkline/simulator";
import {
  type Exclusive,
  type FileFacts,
  runTool,
  type HandlerTool,
  type StoreFile,
} from "@larkline/tool-kit";
import type { ToolOutcome } from "@larkline/protocol/tool";
import { onTestFinished } from "vitest";
import { apiTools } from "./api.ts";
import { decisionTools } from "./approvals.ts";
import { feishuTools, type WorkToolSettings } from "./index.ts";

/** A platform with two people, each with a token of their own. */
export interface ToolWorld {
  platform: FeishuSimulator;
  ann: string;
  bob: string;
  tools: readonly HandlerTool[];
  /** What tools have kept, by id. */
  files: ReadonlyMap<string, { bytes: Uint8Array; facts: FileFacts }>;
  /** Runs a tool as a person; `callId` is the same for every repeat of a call. */
  call(name: string, input: object, as?: CallAs): Promise<ToolOutcome>;
  /** What the call gave; throws when it did not succeed. */
  textOf(name: string, input: object, as?: CallAs): Promise<string>;
}

interface CallAs {
  person?: string;
  callId?: string;
  signal?: AbortSignal;
  /** When a run of the call began that has died: it may only look. */
  beganAtMs?: number;
  /** What a runner gives. */
  exclusive?: Exclusive;
  /** The chat of the conversation. */
  chatId?: string;
}

const appId = "cli_0123456789abcdef";
const appSecret = "secret";

/** Scopes of all tools together, as a person who has agreed to everything. */
function allScopes(tools: readonly HandlerTool[]): string[] {
  return [...new Set(tools.flatMap(({ scopes }) => scopes))];
}

export async function toolWorld({
  settings = {},
  ...options
}: Partial<SimulatorOptions> & { settings?: WorkToolSettings } = {}): Promise<ToolWorld> {
  const platform = await startFeishuSimulator({
    apps: [{ appId, appSecret }],
    limits: "off",
    ...options,
  });
  onTestFinished(async () => await platform.close());
  const tools = [...feishuTools(settings), ...decisionTools(settings), ...apiTools(settings)];
  const ann = platform.addUser({ name: "Ann" }).openId;
  const bob = platform.addUser({ name: "Bob" }).openId;
  const tokens = new Map<string, string>();
  for (const person of [ann, bob]) {
    tokens.set(person, await tokenOf(platform, person, allScopes(tools)));
  }
  let calls = 0;
  const files = new Map<string, { bytes: Uint8Array; facts: FileFacts }>();
  const storeFile: StoreFile = async (bytes, facts) => {
    const id = `blob_${createHash("sha256").update(bytes).digest("base64url")}`;
    files.set(id, { bytes, facts });
    return await Promise.resolve(id);
  };
  const call: ToolWorld["call"] = async (
    name,
    input,
    { person = ann, callId = `call-${++calls}`, signal, beganAtMs, exclusive, chatId } = {},
  ) => {
    const tool = tools.find((one) => one.name === name);
    if (tool === undefined) throw new Error(`no tool ${name}`);
    const token = tokens.get(person) ?? person;
    return await runTool(tool, {
      argumentsText: JSON.stringify(input),
      storeFile,
      context: {
        callId,
        ...(signal && { signal }),
        ...(beganAtMs !== undefined && { beganAtMs }),
        ...(exclusive && { exclusive }),
        ...(chatId && { actor: { app: appId, userId: person, chatId } }),
        identity: { as: "person", token, openId: person, apiOrigin: platform.url },
      },
    });
  };
  return {
    platform,
    ann,
    bob,
    tools,
    files,
    call,
    textOf: async (name, input, as) => {
      const outcome = await call(name, input, as);
      if (!outcome.ok) throw new Error(outcome.error);
      return typeof outcome.result === "string" ? outcome.result : JSON.stringify(outcome.result);
    },
  };
}

/** A person's token with these scopes, by the device flow. */
export async function tokenOf(
  platform: FeishuSimulator,
  person: string,
  scopes: readonly string[],
): Promise<string> {
  const post = async (
    path: string,
    fields: Record<string, string>,
    headers: Record<string, string> = {},
  ) => {
    const response = await fetch(`${platform.url}${path}`, {
      method: "POST",
      headers,
      body: new URLSearchParams(fields),
    });
    return (await response.json()) as Record<string, unknown>; // the simulator's own answer
  };
  const basic = Buffer.from(`${appId}:${appSecret}`).toString("base64");
  const parts = Array.from({ length: Math.max(1, Math.ceil(scopes.length / 40)) }, (_, at) =>
    scopes.slice(at * 40, at * 40 + 40),
  );
  let token = "";
  for (const part of parts) {
    const fields = { client_id: appId, scope: part.join(" ") };
    const started = await post("/oauth/v1/device_authorization", fields, {
      authorization: `Basic ${basic}`,
    });
    platform.grants.consent(String(started["verification_uri_complete"]), person);
    const answer = await post("/open-apis/authen/v2/oauth/token", {
      grant_type: "urn:ietf:params:oauth:grant-type:device_code",
      device_code: String(started["device_code"]),
      client_id: appId,
      client_secret: appSecret,
    });
    token = String(answer["access_token"]);
  }
  return token;
}
