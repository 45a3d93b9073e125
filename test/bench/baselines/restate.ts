import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { readStep } from "@larkline/agent";
import { textOf, toolResultPart, type Message } from "@larkline/protocol/content";
import { noteTool } from "./model-step.ts";
import { apiOfEnvironment, chainOfEnvironment, serveReady, serveWebhook } from "./settings.ts";

// A durable peer: the same work on Restate as its manual shows it. A chat is a virtual object, so its messages are
// answered in order; model calls and the reply are journalled steps; the tool is a service of another process. The worker
// starts the server. `PEER_FOLDER` has the packages, which are too large for the dependencies of this repository.

const {
  PEER_FOLDER: folder = "",
  PEER_INGRESS: ingressPort = "",
  PEER_ADMIN: adminPort = "",
  PEER_NODE: nodePort = "",
  PEER_WORKER: workerPort = "",
  PEER_RUNNER: runnerPort = "",
} = process.env;

/** What is used of `@restatedev/restate-sdk`. */
interface Sdk {
  object(definition: { name: string; handlers: object }): unknown;
  service(definition: { name: string; handlers: object }): unknown;
  serve(options: { services: unknown[]; port: number }): Promise<number>;
}

interface Context {
  get<T>(name: string): Promise<T | null>;
  set(name: string, value: unknown): void;
  run<T>(name: string, step: () => Promise<T>): Promise<T>;
  serviceClient(service: { name: string }): { note(argumentsText: string): Promise<string> };
}

interface Asked {
  messageId: string;
  text: string;
}

async function loadSdk(): Promise<Sdk> {
  const path = join(folder, "node_modules/@restatedev/restate-sdk/dist/index.js");
  return (await import(pathToFileURL(path).href)) as Sdk; // the part of it that is used here
}

function ingress(): void {
  serveWebhook(async ({ chatId, messageId, text }) => {
    const response = await fetch(
      `http://127.0.0.1:${ingressPort}/Chat/${encodeURIComponent(chatId)}/answer/send`,
      {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": messageId },
        body: JSON.stringify({ messageId, text } satisfies Asked),
      },
    );
    if (!response.ok) throw new Error(`Restate: ${response.status} ${await response.text()}`);
    await response.arrayBuffer();
  });
}

async function worker(): Promise<void> {
  const { platform, arch } = process;
  const program = `node_modules/@restatedev/restate-server-${platform}-${arch}/bin/restate-server`;
  // The bench kills this process. The shell then reads the end of its input, and ends the server.
  const untilEnd = '"$0" & server=$!; cat; kill $server; wait; rm -rf "$RESTATE_BASE_DIR"';
  spawn("sh", ["-c", untilEnd, join(folder, program)], {
    stdio: ["pipe", "ignore", "ignore"],
    env: {
      ...process.env,
      RESTATE_BASE_DIR: mkdtempSync(join(tmpdir(), "restate-")),
      RESTATE_LOG_FILTER: "error",
      RESTATE_BIND_ADDRESS: `127.0.0.1:${nodePort}`,
      RESTATE_ADVERTISED_ADDRESS: `http://127.0.0.1:${nodePort}`,
      RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingressPort}`,
      RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${adminPort}`,
    },
  });
  const sdk = await loadSdk();
  const chain = chainOfEnvironment();
  const api = apiOfEnvironment();
  const modelStep = async (messages: readonly Message[]) => {
    const step = await readStep(chain.stream({ messages, tools: [noteTool], system: "bench" }));
    return { text: step.text, call: step.toolCalls[0] };
  };
  const answer = async (context: Context, { messageId, text }: Asked): Promise<void> => {
    const history = (await context.get<Message[]>("history")) ?? [];
    history.push({ role: "user", content: [{ type: "text", text }] });
    for (;;) {
      const step = await context.run("model", async () => await modelStep(history));
      const { call } = step;
      if (call === undefined) {
        history.push({ role: "assistant", content: [{ type: "text", text: step.text }] });
        break;
      }
      const { id, name } = call;
      const use = { type: "tool_use", id, name, arguments: JSON.parse(call.arguments) } as const;
      history.push({ role: "assistant", content: [use] });
      const result = await context.serviceClient({ name: "Tools" }).note(call.arguments);
      history.push({ role: "tool", content: [toolResultPart(id, result)] });
    }
    context.set("history", history);
    const reply = textOf(history.at(-1) ?? { role: "user", content: [] });
    await context.run("reply", async () => {
      const uuid = `restate-${messageId}`.slice(0, 50);
      await api.messages.reply({ messageId, text: reply, uuid, inThread: false });
    });
  };
  const chat = sdk.object({ name: "Chat", handlers: { answer } });
  await sdk.serve({ services: [chat], port: Number(workerPort) });
  await register(Number(workerPort));
  await register(Number(runnerPort));
  serveReady();
}

/** The server takes some seconds until it answers. */
async function register(port: number): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    const answered = await fetch(`http://127.0.0.1:${adminPort}/deployments`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ uri: `http://127.0.0.1:${port}` }),
    }).catch(() => undefined);
    if (answered?.ok === true) return;
    if (tries === 300) throw new Error(`Restate: ${(await answered?.text()) ?? "no answer"}`);
    await delay(100);
  }
}

async function runner(): Promise<void> {
  const sdk = await loadSdk();
  const note = async (_context: Context, argumentsText: string) =>
    await Promise.resolve(argumentsText);
  const tools = sdk.service({ name: "Tools", handlers: { note } });
  await sdk.serve({ services: [tools], port: Number(runnerPort) });
  serveReady();
}

const roles = { ingress, worker, runner };
const role = process.argv[2];
if (role !== "ingress" && role !== "worker" && role !== "runner") {
  throw new Error("role: ingress, worker or runner");
}
await roles[role]();
