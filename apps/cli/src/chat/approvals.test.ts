import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { text as textOf } from "node:stream/consumers";
import { formatSseEvent, type ApiApproval, type StreamFrame } from "@larkline/protocol";
import { afterEach, describe, expect, it } from "vitest";
import { choicesText, decisionIn, questionText } from "./approvals.ts";
import { startChat, type ChatProcess } from "./chat-process.fixture.ts";
import { chatTexts } from "./answer-view.ts";

const approval: ApiApproval = {
  id: "a".repeat(32),
  kind: "call",
  run_id: "api.s-1",
  call_id: "c1",
  tool: "deploy",
  arguments: { to: "prod" },
  reason: "",
  risk: "high",
  decisions: ["approve", "reject"],
  may_remember: true,
  created_at: 1,
  expires_at: 2,
  state: "pending",
};

let server: Server | undefined;
const children: ChatProcess[] = [];

afterEach(() => {
  for (const { process } of children.splice(0)) process.kill("SIGKILL");
  server?.closeAllConnections();
  server?.close();
});

interface Asked {
  chat: ChatProcess;
  decisions: unknown[];
  /** Continues the run. */
  send(...frames: StreamFrame[]): void;
}

const toolError: StreamFrame = { type: "tool_error", id: "c1", name: "deploy", error: "User rejected this action." };
const done: StreamFrame = { type: "done", final: "ok" };

/** A person asks for something that waits for their approval; decisions are answered with these codes, then 200. */
async function asked(codes: number[] = []): Promise<Asked> {
  const decisions: unknown[] = [];
  const streams: ((frame: StreamFrame) => void)[] = [];
  const started = createServer(async (request, response) => {
    const body = await textOf(request);
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://localhost");
    if (pathname === "/chat") {
      response.writeHead(200, { "content-type": "text/event-stream", "x-run-id": "api.s-1" });
      streams.push((frame) => void response.write(formatSseEvent(frame)));
      response.write(formatSseEvent({ type: "tool_call", id: "c1", name: "deploy", args: {} }));
    } else if (pathname === "/v1/runs/api.s-1/cancel") {
      response.writeHead(202).end("{}");
    } else if (request.method === "GET") {
      const isOpen = searchParams.get("session_id") === "s" && request.headers.authorization === "Bearer t0ken";
      response.end(JSON.stringify({ approvals: isOpen ? [approval] : [] }));
    } else {
      decisions.push({ id: pathname.split("/").at(-1), ...JSON.parse(body) });
      response.writeHead(codes.shift() ?? 200).end("{}");
    }
  });
  server = started;
  await once(started.listen(0, "127.0.0.1"), "listening");
  const { port } = started.address() as AddressInfo; // it listens on TCP
  const args = ["--url", `http://127.0.0.1:${port}`, "--lang", "en", "--session", "s"];
  const chat = startChat(args, { API_TOKEN: "t0ken" });
  children.push(chat);
  chat.type("deploy");
  await chat.until("Approve? y approve, a always allow, n [reason] reject: ");
  return { chat, decisions, send: (...frames) => frames.forEach((frame) => streams.at(-1)?.(frame)) };
}

describe("a run that waits for an approval", () => {
  it("asks the person, and continues after a rejection with a reason", async () => {
    const { chat, decisions, send } = await asked();
    expect(chat.screen()).toContain('wants to run deploy with:\n{"to":"prod"}\nRisk: high\n');
    chat.type("what?");
    await chat.until("Please type one of the letters.");
    chat.type("n not on a Friday");
    await chat.until("[Noted]");
    expect(decisions).toEqual([{ id: approval.id, decision: "reject", note: "not on a Friday" }]);
    send(toolError, done);
    await chat.until("[Tool deploy failed]: User rejected this action.");
    chat.type("quit");
    expect(await chat.exitCode()).toBe(0);
  });

  it("asks again when the decision was not taken", async () => {
    const { chat, decisions, send } = await asked([503]);
    chat.type("y");
    await chat.until("[Not taken, please try again]");
    chat.type("a");
    await chat.until("[Noted]");
    expect(decisions.slice(1)).toEqual([{ id: approval.id, decision: "approve", remember: true }]);
    send({ type: "tool_result", id: "c1", name: "deploy", result: "ok" }, done);
    await chat.until("[Tool deploy finished]: ok");
  });

  it("says that it was decided before", async () => {
    const { chat } = await asked([409]);
    chat.type("y");
    await chat.until("[Decided before, or expired]");
  });

  it("takes no answer any more when another person has decided: the next line is a message", async () => {
    const { chat, decisions, send } = await asked();
    send(toolError, done);
    await chat.until("[Tool deploy failed]");
    await chat.until("You: ");
    chat.type("y");
    await chat.until("[Calling tool: deploy]\n");
    expect(decisions).toEqual([]);
  });

  it("is left by Ctrl-C", async () => {
    const { chat, decisions } = await asked();
    chat.process.kill("SIGINT");
    await chat.until("[Cancelled]");
    chat.type("quit");
    expect(await chat.exitCode()).toBe(0);
    expect(decisions).toEqual([]);
  });
});

describe("an answer", () => {
  const outcome: ApiApproval = { ...approval, kind: "outcome", may_remember: false };
  const plain: ApiApproval = { ...approval, may_remember: false };

  it.each<[string, ApiApproval, object | undefined]>([
    [" Y ", approval, { decision: "approve" }],
    ["是", approval, { decision: "approve" }],
    ["a", approval, { decision: "approve", remember: true }],
    ["a", plain, undefined],
    ["n", approval, { decision: "reject" }],
    ["n  too late ", approval, { decision: "reject", note: "too late" }],
    ["y but only staging", approval, undefined],
    ["yep", approval, undefined],
    ["", approval, undefined],
    ["constructor", approval, undefined],
    ["r", outcome, { decision: "retry" }],
    ["d ticket 7", outcome, { decision: "done", note: "ticket 7" }],
    ["x", outcome, { decision: "abort" }],
    ["y", outcome, undefined],
    ["r", approval, undefined],
  ])("%j about a question of kind %#", (line, about, decision) => {
    expect(decisionIn(line, about)).toEqual(decision);
  });

  it("is asked for with the letters that count", () => {
    expect(choicesText(outcome, chatTexts.en)).toContain("r run it again");
    expect(choicesText(plain, chatTexts.en)).not.toContain("always");
  });
});

describe("a question", () => {
  it("cannot steer the terminal, and says what of long arguments it does not show", () => {
    const shown = questionText(
      { ...approval, tool: "de\u001B[2Jploy", arguments: { text: "x".repeat(3_000) } },
      chatTexts.zh,
    );
    expect(shown).toContain("执行 de[2Jploy");
    expect(shown).toContain("（还有 1011 个字符没有显示）");
  });
});
