import type { Approval } from "@larkline/sdk";
import { describe, expect, it, onTestFinished } from "vitest";
import { choicesText, decisionIn, questionText } from "./approvals.ts";
import { startChat, type ChatProcess } from "./chat-process.fixture.ts";
import { chatTexts } from "./answer-view.ts";
import { done, playServer, type PlayedServer } from "./played-server.fixture.ts";

const approval: Approval = {
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

interface Asked {
  chat: ChatProcess;
  server: PlayedServer;
  /** What was decided. */
  decisions(): unknown[];
}

const call = { type: "tool_use", id: "c1", toolName: "deploy", input: {} } as const;
const question = {
  type: "permission_request",
  id: approval.id,
  toolName: "deploy",
  input: {},
  message: "",
  toolCallId: "c1",
};
const result = (output: string, isError = false) => {
  return {
    type: "tool_result",
    id: "c1",
    toolName: "deploy",
    output,
    isError,
    truncated: false,
    storedPath: "",
  };
};
const rejected = result("User rejected this action.", true);

/** A person asks for something that waits for their approval; decisions are answered with these statuses, then 202. */
async function asked(...statuses: number[]): Promise<Asked> {
  const decide = `POST /v1/approvals/${approval.id}`;
  const refusals = { [decide]: statuses.map((status) => ({ status })) };
  const server = await playServer({ interruptions: [approval], refusals, reply: () => [call] });
  const chat = startChat(["--url", server.url, "--lang", "en", "--session", "s"], {
    API_TOKEN: "t0ken",
  });
  onTestFinished(() => void chat.process.kill("SIGKILL"));
  chat.type("deploy");
  await chat.until("[Calling tool: deploy]\n");
  server.tell(question);
  await chat.until("Approve? y approve, a always allow, n [reason] reject: ");
  return { chat, server, decisions: () => server.asked(decide).map(({ body }) => body) };
}

describe("a run that waits for an approval", () => {
  it("asks the person, and continues after a rejection with a reason", async () => {
    const { chat, decisions, server } = await asked();
    expect(chat.screen()).toContain('wants to run deploy with:\n{"to":"prod"}\nRisk: high\n');
    chat.type("what?");
    await chat.until("Please type one of the letters.");
    chat.type("n not on a Friday");
    await chat.until("[Noted]");
    expect(decisions()).toEqual([{ decision: "reject", note: "not on a Friday" }]);
    server.tell(rejected, done);
    await chat.until("[Tool deploy failed]: User rejected this action.");
    chat.type("quit");
    expect(await chat.exitCode()).toBe(0);
  });

  it("asks again when the decision was not taken", async () => {
    const { chat, decisions, server } = await asked(500);
    chat.type("y");
    await chat.until("[Not taken, please try again]");
    chat.type("a");
    await chat.until("[Noted]");
    expect(decisions().slice(1)).toEqual([{ decision: "approve", remember: true }]);
    server.tell(result("ok"), done);
    await chat.until("[Tool deploy finished]: ok");
  });

  it.each([
    [409, "[Decided before, or expired]"],
    [403, "[Others have to decide this]"],
  ])("says of status %d: %s", async (status, words) => {
    const { chat } = await asked(status);
    chat.type("y");
    await chat.until(words);
  });

  it("takes no answer any more when another person has decided: the next line is a message", async () => {
    const { chat, decisions, server } = await asked();
    server.tell(rejected, done);
    await chat.until("[Tool deploy failed]");
    chat.type("y");
    await expect.poll(() => server.asked("POST /v1/runs"), { timeout: 60_000 }).toHaveLength(2);
    expect(server.asked("POST /v1/runs")[1]?.body).toMatchObject({ input: "y" });
    expect(decisions()).toEqual([]);
  });

  it("is left by Ctrl-C", async () => {
    const { chat, decisions } = await asked();
    chat.process.kill("SIGINT");
    await chat.until("[Cancelled]");
    chat.type("quit");
    expect(await chat.exitCode()).toBe(0);
    expect(decisions()).toEqual([]);
  });
});

describe("a run that asks the person", () => {
  const requestId = "b".repeat(32);
  const answering = `POST /v1/inputs/${requestId}`;
  const asks = {
    type: "input_requested",
    requestId,
    callId: "c1",
    question: "Which colour?",
    choices: ["Blue", "Green"],
    expiresAtMs: 2,
  };

  /** Answers are answered with these statuses, then 202. */
  async function questioned(...statuses: number[]) {
    const refusals = { [answering]: statuses.map((status) => ({ status })) };
    const server = await playServer({ refusals, reply: () => [call] });
    const chat = startChat(["--url", server.url, "--lang", "en", "--session", "s"], {
      API_TOKEN: "t0ken",
    });
    onTestFinished(() => void chat.process.kill("SIGKILL"));
    chat.type("paint it");
    await chat.until("[Calling tool: deploy]\n");
    server.tell(asks);
    await chat.until("Your answer: ");
    return { chat, server, answers: () => server.asked(answering).map(({ body }) => body) };
  }

  it("shows the question with its choices, and takes the number of one", async () => {
    const { chat, answers, server } = await questioned();
    expect(chat.screen()).toContain("[The assistant asks]\nWhich colour?\n1. Blue\n2. Green\n");
    chat.type("2");
    await chat.until("[Noted]");
    expect(answers()).toEqual([{ value: "Green" }]);
    server.tell(result("ok"), done);
    await chat.until("[Tool deploy finished]: ok");
  });

  it("takes any other words, again when they were not taken", async () => {
    const { chat, answers } = await questioned(500);
    chat.type("  a dark red ");
    await chat.until("[Not taken, please try again]");
    chat.type("red");
    await chat.until("[Noted]");
    expect(answers()).toEqual([{ value: "a dark red" }, { value: "red" }]);
  });

  it("takes no answer any more when another person has answered", async () => {
    const { chat, answers, server } = await questioned();
    server.tell(result("ok"), done);
    await chat.until("[Tool deploy finished]");
    chat.type("1");
    await expect.poll(() => server.asked("POST /v1/runs"), { timeout: 60_000 }).toHaveLength(2);
    expect(answers()).toEqual([]);
  });
});

describe("an answer", () => {
  const outcome: Approval = { ...approval, kind: "outcome", may_remember: false };
  const plain: Approval = { ...approval, may_remember: false };

  it.each<[string, Approval, object | undefined]>([
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
