import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { StreamFrame } from "@larkline/protocol/views/stream-frame";
import { codeCache } from "@larkline/testkit";
import { describe, expect, it, vi } from "vitest";
import { chat, heldFrames, resume } from "../system/chat-stream.ts";
import { system } from "./http-deployment.ts";

function addressOf(replica: 0 | 1): string {
  return system.ingresses[replica]?.url ?? "";
}

function hasCall(frames: readonly StreamFrame[]): boolean {
  return frames.some(({ type }) => type === "tool_call");
}

function lastSeq(frames: readonly StreamFrame[]): number {
  return frames.at(-1)?.seq ?? 0;
}

function question(key: string): string {
  return `wait\ncall hold_once ${JSON.stringify({ key })}`;
}

const answered = [
  expect.objectContaining({ type: "tool_result", name: "hold_once", result: "released" }),
  expect.objectContaining({ type: "assistant", content: expect.any(String) }),
  expect.objectContaining({ type: "done", final: "[wait] ok:released" }),
];

describe("two ingress replicas", () => {
  it("a run begun at one is followed from the other: what was seen does not come again, nothing is missing", async () => {
    const first = await chat(addressOf(0), "shared", question("shared"));
    await first.until(hasCall);
    const second = await resume(addressOf(1), "shared", lastSeq(first.frames()));
    await system.release("shared");
    expect(heldFrames(await second.end())).toEqual(answered);
    expect(heldFrames(await first.end()).slice(2)).toEqual(heldFrames(second.frames()));
  });

  it("the progress of a tool does not disturb the stream", async () => {
    const stream = await chat(addressOf(1), "progress", question("progress"));
    await stream.until(hasCall);
    await vi.waitUntil(async () => (await system.recorded()).includes("once progress"), {
      timeout: 60_000,
    });
    await system.release("progress");
    const frames = heldFrames(await stream.end());
    expect(frames.map(({ type }) => type)).toEqual([
      "user_message",
      "tool_call",
      "tool_result",
      "assistant",
      "done",
    ]);
    const [call, result] = frames.slice(1).map(({ seq = 0 }) => seq);
    expect((result ?? 0) - (call ?? 0)).toBeGreaterThan(1); // the progress has a number of its own
  });

  it("an ingress that is stopped ends its streams without a result, and the run continues at the other one", async () => {
    const leaving = await system.start("ingress");
    const first = await chat(leaving.url, "stopped", question("stopped"));
    await first.until(hasCall);
    expect(await leaving.stop()).toBe(0);
    const seen = await first.end();
    expect(heldFrames(seen).map(({ type }) => type)).toEqual(["user_message", "tool_call"]);
    const second = await resume(addressOf(1), "stopped", lastSeq(seen));
    await system.release("stopped");
    expect(heldFrames(await second.end())).toEqual(answered);
  });

  it("a run whose ingress is killed continues, and can be followed at the other one", async () => {
    const victim = await system.start("ingress");
    const first = await chat(victim.url, "killed", question("killed"));
    await first.until(hasCall);
    await victim.kill();
    await first.end().catch(() => undefined); // cut off
    const second = await resume(addressOf(0), "killed", lastSeq(first.frames()));
    await system.release("killed");
    expect(heldFrames(await second.end())).toEqual(answered);
    expect((await system.recorded()).filter((line) => line === "once killed")).toHaveLength(1);
  });
});

it("the terminal client holds a conversation with tools over the real HTTP API", async () => {
  const client = spawn(
    process.execPath,
    ["apps/cli/src/main.ts", "chat", "--url", addressOf(0), "--lang", "en"],
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
  await system.release("cli");
  client.stdin.write("hello\n");
  await until("[hello]");
  client.stdin.write('call hold_pure {"key":"cli"}\n');
  await until("[Tool hold_pure finished]: released");
  await until("ok:released");
  client.stdin.write("quit\n");
  expect((await closed)[0]).toBe(0);
  expect(screen.trimEnd().endsWith("Goodbye!")).toBe(true);
});
