import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { parseMessage } from "@larkline/protocol/views/chat-messages";
import type { SessionItems } from "@larkline/protocol/views/run-api";
import { createClient, type Run } from "@larkline/sdk";
import { codeCache } from "@larkline/testkit";
import { afterEach, expect, it, vi } from "vitest";
import { chat, heldFrames } from "../system/chat-stream.ts";
import { hangingAfter, obedientModel } from "../system/model-script.ts";
import { system } from "./http-deployment.ts";

afterEach(() => system.model.setScript(obedientModel));

function address(): string {
  return system.ingresses[0]?.url ?? "";
}

/** A proxy that breaks each connection once that many bytes of the answer have passed. */
async function cuttingProxy(bytes: number) {
  const { port, hostname } = new URL(address());
  const sockets = new Set<Socket>();
  let cuts = 0;
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    let passed = 0;
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => sockets.delete(socket));
    }
    const end = () => {
      client.destroy();
      upstream.destroy();
    };
    client.on("data", (data) => upstream.write(data));
    client.on("close", end);
    upstream.on("close", end);
    upstream.on("data", (data) => {
      client.write(data.subarray(0, bytes - passed));
      passed += data.length;
      if (passed < bytes) return;
      cuts += 1;
      client.once("drain", end).end();
      setImmediate(end);
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, // it listens on TCP
    cuts: () => cuts,
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

function startTerminal(url: string, ...more: string[]) {
  const client = spawn(
    process.execPath,
    ["apps/cli/src/main.ts", "chat", "--url", url, "--lang", "en", ...more],
    {
      cwd: fileURLToPath(new URL("../..", import.meta.url)),
      env: { PATH: process.env["PATH"] ?? "", NODE_COMPILE_CACHE: codeCache },
      stdio: ["pipe", "pipe", "inherit"],
    },
  );
  let screen = "";
  client.stdout.setEncoding("utf8").on("data", (data: string) => (screen += data));
  return {
    type: (line: string) => void client.stdin.write(`${line}\n`),
    interrupt: () => void client.kill("SIGINT"),
    screen: () => screen,
    until: async (part: string) =>
      await vi.waitFor(() => expect(screen).toContain(part), { timeout: 60_000, interval: 10 }),
    leave: async () => {
      const closed = once(client, "close");
      client.stdin.end();
      await closed;
    },
  };
}

const ruler = `\n${"=".repeat(60)}\n`;

it("SA-32: an answer reaches the terminal whole and once through a proxy that cuts every connection", async () => {
  const proxy = await cuttingProxy(1_200);
  const words = Array.from({ length: 60 }, (_, index) => ` word${index}`).join("");
  const before = system.model.requests.length;
  const terminal = startTerminal(proxy.url);
  terminal.type("type 60");
  await terminal.until(`[type 60]${words}${ruler}`);
  await terminal.leave();
  expect(proxy.cuts()).toBeGreaterThan(2);
  expect(system.model.requests.length - before).toBe(1);
  proxy.close();
});

it("SA-32: a closed connection leaves the model at work, and Ctrl-C in the terminal stops it", async () => {
  const endless = hangingAfter(["first ", "second ", "third"], 1);
  system.model.setScript((request) =>
    request.messages.at(-1)?.text === "slow" ? endless : obedientModel(request),
  );
  const before = system.model.aborted;
  const terminal = startTerminal(address(), "--session", "cancelled");
  terminal.type("slow");
  await terminal.until("first");
  const follower = await chat(address(), "unattended", "slow");
  await follower.until((frames) => frames.some(({ type }) => type === "assistant"));
  follower.leave();
  terminal.interrupt();
  await terminal.until("[Cancelled]");
  await vi.waitFor(() => expect(system.model.aborted).toBeGreaterThan(before), {
    timeout: 60_000,
    interval: 10,
  });
  terminal.type("/status");
  await terminal.until("Messages");
  terminal.type("/stop");
  await terminal.until("Nothing");
  terminal.type("hello");
  await terminal.until("[hello]");
  await terminal.leave();
  // The run whose client only left is still there.
  const session = await fetch(`${address()}/v1/sessions/unattended`);
  expect(await session.json()).toMatchObject({ state: "running" });
  const { aborted } = system.model;
  const [stopped] = (await (await chat(address(), "unattended", "/stop")).end()).slice(-1);
  expect(stopped).toMatchObject({ type: "done" });
  await vi.waitFor(() => expect(system.model.aborted).toBeGreaterThan(aborted), {
    timeout: 60_000,
    interval: 10,
  });
});

it("a terminal asks its person what a run waits for, and shows what came of it", async () => {
  const terminal = startTerminal(address(), "--session", "asked");
  terminal.type('call ask_once {"key":"terminal"}');
  await terminal.until("wants to run ask_once with:");
  terminal.type("y");
  await terminal.until("[Noted]");
  await terminal.until("[Tool ask_once finished]");
  terminal.type('call ask_once {"key":"again"}');
  await terminal.until('{"key":"again"}');
  terminal.type("n not now");
  await terminal.until("[Tool ask_once failed]");
  await terminal.leave();
  const recorded = await system.recorded();
  expect(recorded.filter((line) => / (?:terminal|again)$/.test(line))).toHaveLength(1);
});

it("where messages steer, the second client follows the run that took its message", async () => {
  const message = 'first\ncall meet {"key":"steer","of":2}';
  const first = await chat(address(), "steer", { message, agent: "steered" });
  await first.until((frames) => frames.some(({ type }) => type === "tool_call"));
  const second = await chat(address(), "steer", { message: "second", agent: "steered" });
  await second.until((frames) => frames.length === 1);
  await (await chat(address(), "other", 'other\ncall meet {"key":"steer","of":2}')).end();
  const frames = heldFrames(await second.end());
  const end = (await first.end()).at(-1);
  expect(end).toMatchObject({ type: "done", final: expect.stringContaining("second") });
  expect(frames.at(-1)).toEqual(end);
  const text = frames
    .flatMap((frame) => (frame.type === "assistant" ? [frame.content] : []))
    .join("");
  expect(end).toMatchObject({ final: text });
});

it("a message that joins a run is a message of that run, for those who follow either", async () => {
  const client = createClient({ url: address() });
  const options = { agent: "steered", session: "joins" };
  const first = client.run('first\ncall meet {"key":"joins","of":2}', options);
  for await (const { type } of client.attach(await first.id()).stream()) {
    if (type === "tool_use") break;
  }
  const second = client.run("and this", options);
  const told = async (run: Run): Promise<[string, unknown][]> => {
    const messages: [string, unknown][] = [];
    for await (const message of run.messages()) {
      if (message.type === "TextMessage") messages.push([message.source, message.content]);
      expect(parseMessage(message)).toEqual({ ok: true, value: message });
    }
    return messages;
  };
  await second.id();
  await client.run('other\ncall meet {"key":"joins","of":2}', { session: "meets" }).result();
  const answer = ["steered", expect.stringContaining("and this")];
  const joined = ["user", "and this"];
  expect(await told(first)).toEqual([["user", expect.stringMatching(/^first/)], joined, answer]);
  expect(await told(second)).toEqual([joined, answer]);
  expect(
    await told(createClient({ url: system.ingresses[1]?.url ?? "" }).attach(await first.id())),
  ).toHaveLength(3);
});

it("the items of a session name the agents that they come from", async () => {
  const client = createClient({ url: address() });
  await client
    .run('call hold_once {"key":"named"}', { session: "named", agent: "steered", detach: true })
    .id();
  await system.release("named");
  await client.run("hello", { session: "named" }).result();
  const response = await fetch(`${address()}/v1/sessions/named/items`);
  const { items } = (await response.json()) as SessionItems; // our own server wrote it
  expect(items.map((item) => ("agent" in item ? [item.type, item.agent] : item.role))).toEqual([
    "user",
    ["tool_call_item", "steered"],
    ["tool_call_output_item", "steered"],
    ["message_output_item", "steered"],
    "user",
    ["message_output_item", "default"],
  ]);
});

it("orders over HTTP are answered with text, those to the session too", async () => {
  for (const order of [
    "/new",
    "/model",
    "/compact",
    "/help",
    "/status",
    "/whoami",
    "/usage",
    "/permissions",
    "/stop",
  ]) {
    const frames = await (await chat(address(), "orders", order)).end();
    const text = frames
      .flatMap((frame) => (frame.type === "assistant" ? [frame.content] : []))
      .join("");
    expect([order, frames.at(-1)]).toEqual([
      order,
      expect.objectContaining({ type: "done", final: text }),
    ]);
    expect([order, text.trim().length > 0]).toEqual([order, true]);
  }
});

it("many clients at once get the truth: every message that is not answered was not stored", async () => {
  const texts = Array.from({ length: 200 }, (_, index) => `message ${index}`);
  const told = await Promise.all(
    texts.map(async (text, index) => {
      const end = (await (await chat(address(), `many-${index}`, text)).end()).at(-1);
      return end?.type === "error" ? (end.code ?? end.message) : `answered ${end?.type ?? ""}`;
    }),
  );
  const asked = new Set(system.model.requests.map(({ messages }) => messages.at(-1)?.text));
  const untrue = texts.flatMap((text, index) => {
    const answer = told[index] ?? "";
    return asked.has(text) && !/^answered done$|^uncertain$/.test(answer)
      ? [`${text}: ${answer}`]
      : [];
  });
  expect(untrue).toEqual([]);
  expect(
    texts.filter((text, index) => !asked.has(text) && told[index] === "answered done"),
  ).toEqual([]);
  expect(told.filter((what) => what === "answered done").length).toBeGreaterThan(0);
});
