import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { StreamFrame } from "@larkline/protocol/views/stream-frame";
import {
  codeCache,
  startModelServer,
  type ModelServer,
  type ScriptedReply,
} from "@larkline/testkit";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import type { AppProcess } from "../system/app-process.ts";
import { chat, resume } from "../system/chat-stream.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

const final = "All is well that ends well.";

/** Says half of an answer, then this happens. */
function half(kind: "cut" | "hang"): ScriptedReply {
  // Two frames of the vendor come before the first piece.
  return { text: ["All is ", "lost, "], delayMs: 30, fault: { kind, afterFrames: 4 } };
}

/** The text that a client keeps if it drops what came before each restart and each result. */
function heldOf(frames: readonly StreamFrame[]): string {
  return frames.reduce((held, frame) => {
    if (frame.type === "assistant") return held + frame.content;
    return ["restart", "tool_result", "tool_error"].includes(frame.type) ? "" : held;
  }, "");
}

let system: ProcessSystem;
let fallback: ModelServer;
beforeAll(async () => {
  fallback = await startModelServer({ script: () => ({ text: final }) });
  system = await startProcesses({
    runners: 0,
    env: {
      MODEL: "anthropic/claude-sonnet-4-6,openai/gpt-5",
      OPENAI_BASE_URL: `${fallback.url}/v1`,
      OPENAI_API_KEY: "scripted",
    },
  });
});
afterAll(async () => {
  await system.close();
  await fallback.close();
});

/** Every request gets this, and the answer once the result was called. */
function saidUntilCalled(reply: ScriptedReply): () => void {
  let isOver = false;
  system.model.setScript(() => (isOver ? { text: final } : reply));
  return () => {
    isOver = true;
  };
}

/** The first request gets this, every later one the answer. */
function first(reply: ScriptedReply): void {
  let asked = 0;
  system.model.setScript(() => {
    asked += 1;
    return asked === 1 ? reply : { text: final };
  });
}

function address(): string {
  return system.ingresses[0]?.url ?? "";
}

function restartsIn(frames: readonly StreamFrame[]): number {
  return frames.filter(({ type }) => type === "restart").length;
}

/** The terminal client, from the question to the end of the answer. */
async function screenOf(
  question: string,
  during: (until: (part: string) => Promise<void>) => Promise<void>,
) {
  const client = spawn(
    process.execPath,
    ["apps/cli/src/main.ts", "chat", "--url", address(), "--lang", "en"],
    {
      cwd: fileURLToPath(new URL("../..", import.meta.url)),
      env: { PATH: process.env["PATH"] ?? "", NODE_COMPILE_CACHE: codeCache },
      stdio: ["pipe", "pipe", "inherit"],
    },
  );
  let screen = "";
  client.stdout.setEncoding("utf8").on("data", (data: string) => (screen += data));
  const closed = once(client, "close");
  const until = async (part: string) =>
    await vi.waitFor(() => expect(screen).toContain(part), { timeout: 60_000, interval: 10 });
  client.stdin.write(`${question}\n`);
  await during(until);
  await until(`${final}\n${"=".repeat(60)}`);
  client.stdin.end("quit\n");
  await closed;
  return screen;
}

/** What the terminal shows after the last line that says "anew". */
function drawnAnew(screen: string): string {
  const [answer = ""] =
    screen
      .split("begins anew]\nAssistant: ")
      .at(-1)
      ?.split(`\n${"=".repeat(60)}`) ?? [];
  return answer;
}

it("EE-49: after a vendor's stream that was cut, a client that drops what is void holds exactly the final text", async () => {
  first(half("cut"));
  const frames = await (await chat(address(), "cut", "hello")).end();
  expect(frames.filter(({ type }) => type === "assistant").length).toBeGreaterThan(1);
  expect(frames.at(-1)).toMatchObject({ type: "done", final });
  expect(heldOf(frames)).toBe(final);
  expect(restartsIn(frames)).toBe(1);
  first(half("cut"));
  const screen = await screenOf("hello", async (until) => await until("All is"));
  expect(drawnAnew(screen)).toBe(final);
});

it("EE-49: so it does when another model answers in place of the first", async () => {
  system.model.setScript(() => half("cut"));
  const frames = await (await chat(address(), "fallback", "hello")).end();
  expect(frames.at(-1)).toMatchObject({ type: "done", final });
  expect(heldOf(frames)).toBe(final);
  expect(restartsIn(frames)).toBeGreaterThan(0);
});

it("EE-49: so it does when the worker is killed in the middle of the stream, also across a resumed connection", async () => {
  const victims = system.workers.splice(0);
  let worker: AppProcess | undefined = victims[0];
  const answerFirst = saidUntilCalled(half("hang"));
  const stream = await chat(address(), "killed", "hello");
  await stream.until((frames) => heldOf(frames) === "All is lost, ");
  const seen = stream.frames();
  stream.leave();
  answerFirst();
  await worker?.kill();
  worker = await system.start("agent-worker");
  system.workers.push(worker);
  const rest = await (await resume(address(), "killed", seen.at(-1)?.seq ?? 0)).end();
  expect(rest.at(-1)).toMatchObject({ type: "done", final });
  expect(heldOf([...seen, ...rest])).toBe(final);
  expect(restartsIn(rest)).toBe(1);

  const answerSecond = saidUntilCalled(half("hang"));
  const screen = await screenOf("hello", async (until) => {
    await until("All is lost, ");
    answerSecond();
    await system.workers.shift()?.kill();
    system.workers.push(await system.start("agent-worker"));
  });
  expect(drawnAnew(screen)).toBe(final);
});
