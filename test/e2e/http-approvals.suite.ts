import { describe, expect, it, vi } from "vitest";
import { chat, heldFrames } from "../system/chat-stream.ts";
import { system } from "./http-deployment.ts";

type ApiApproval = Record<string, unknown> & { id: string; tool: string; kind: string };

function urlOf(replica: number): string {
  return system.ingresses[replica]?.url ?? "";
}

async function pendingOf(session: string, replica = 0): Promise<ApiApproval[]> {
  const response = await fetch(`${urlOf(replica)}/v1/approvals?session_id=${session}`);
  expect(response.status).toBe(200);
  const { approvals } = (await response.json()) as { approvals: ApiApproval[] }; // our own server wrote it
  return approvals;
}

async function untilPending(session: string): Promise<ApiApproval> {
  return await vi.waitUntil(async () => (await pendingOf(session))[0], {
    timeout: 60_000,
    interval: 20,
  });
}

async function post(
  id: string,
  body: object,
  replica = 1,
): Promise<{ status: number; body: object }> {
  const response = await fetch(`${urlOf(replica)}/v1/approvals/${id}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as object }; // our own server wrote it
}

async function runs(key: string): Promise<number> {
  return (await system.recorded()).filter((line) => line.endsWith(` ${key}`)).length;
}

describe("a run over HTTP whose tool needs an approval", () => {
  it("SA-40: is kept alive by heartbeats, lists the question without secrets, and continues after the decision", async () => {
    const session = "waits";
    const secret = "hunter2-hunter2";
    const call = `call ask_once ${JSON.stringify({ key: "h1", password: secret })}`;
    const stream = await chat(urlOf(0), session, `deploy\n${call}`);
    await vi.waitUntil(() => /"approval_request"[^]*(: ping\n\n){3}/.test(stream.text()), {
      timeout: 60_000,
      interval: 10,
    });
    const shown = heldFrames(stream.frames());
    expect(shown.map(({ type }) => type)).toEqual([
      "user_message",
      "tool_call",
      "approval_request",
    ]);
    expect(shown[1]).toMatchObject({ args: { key: "h1", password: "***" } });

    const asked = await untilPending(session);
    expect(asked).toMatchObject({
      kind: "call",
      tool: "ask_once",
      arguments: { key: "h1", password: "***" },
      decisions: ["approve", "reject"],
      state: "pending",
    });
    expect(await pendingOf("another")).toEqual([]);
    expect(await runs("h1")).toBe(0);

    expect((await post(asked.id, { decision: "retry" })).status).toBe(404);
    expect((await post("f".repeat(32), { decision: "approve" })).status).toBe(404);
    expect(await post(asked.id, { decision: "approve" })).toMatchObject({
      status: 200,
      body: { approval: { state: "approved" } },
    });
    const frames = heldFrames(await stream.end());
    expect(frames.slice(3).map(({ type }) => type)).toEqual(["tool_result", "assistant", "done"]);
    expect(frames.at(-1)).toMatchObject({ final: '[deploy] ok:{"key":"h1"}' });
    expect(await runs("h1")).toBe(1);
    expect(await pendingOf(session)).toEqual([]);
    // What the person wrote is theirs to read; what was made of it hides the secret.
    const [, ...answers] = frames;
    expect(JSON.stringify(answers)).not.toContain(secret);
    for (const { output } of [...system.ingresses, ...system.workers, ...system.runners]) {
      expect(output()).not.toContain(secret);
    }
  });

  it("AL-34: takes one of two decisions at the same moment on two replicas", async () => {
    const stream = await chat(urlOf(0), "race", 'race\ncall ask_once {"key":"h2"}');
    const { id } = await untilPending("race");
    const answers = await Promise.all([
      post(id, { decision: "approve" }, 0),
      post(id, { decision: "reject" }, 1),
    ]);
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409]);
    const approved = answers[0]?.status === 200;
    const final = (await stream.end()).at(-1);
    expect(JSON.stringify(final)).toContain(approved ? "ok:" : "User rejected this action.");
    expect(await runs("h2")).toBe(approved ? 1 : 0);
  });

  it("AL-35: gives the model the note of a rejection", async () => {
    const stream = await chat(urlOf(0), "rejected", 'drop\ncall ask_once {"key":"h3"}');
    const { id } = await untilPending("rejected");
    const note = "Use the copy of last night.";
    expect((await post(id, { decision: "reject", note })).status).toBe(200);
    const error = `User rejected this action.\nReason: ${note}`;
    const frames = heldFrames(await stream.end());
    expect(frames[3]).toMatchObject({ type: "tool_error", name: "ask_once", error });
    expect(frames.at(-1)).toMatchObject({ type: "done", final: `[drop] failed:${error}` });
    expect(await runs("h3")).toBe(0);
    const session = await fetch(`${urlOf(1)}/v1/sessions/rejected`);
    expect(await session.json()).toMatchObject({ denials: 1 });
  });
});

describe("a session over HTTP in which calls of one kind were approved three times", () => {
  const session = "learns";
  const message = 'open\ncall ask_pure {"key":"archive"}';

  async function approveOne(): Promise<void> {
    const stream = await chat(urlOf(0), session, message);
    const call = await vi.waitUntil(
      async () => (await pendingOf(session)).find(({ kind }) => kind === "call"),
      {
        timeout: 60_000,
        interval: 20,
      },
    );
    expect((await post(call.id, { decision: "approve" })).status).toBe(200);
    expect((await stream.end()).at(-1)).toMatchObject({ type: "done" });
  }

  it("is offered a rule, and calls run unasked once a worker has written it", async () => {
    for (let round = 1; round <= 3; round += 1) {
      expect(await pendingOf(session)).toEqual([]);
      await approveOne();
    }
    const rule = await untilPending(session);
    expect(rule).toMatchObject({ kind: "rule", tool: "ask_pure", arguments: { key: "archive" } });
    expect(await post(rule.id, { decision: "approve" })).toMatchObject({ status: 200 });
    const rules = async () =>
      await (await fetch(`${urlOf(0)}/v1/permissions?session_id=${session}`)).json();
    await vi.waitFor(
      async () => expect(await rules()).toMatchObject({ rules: [{ id: rule.id }] }),
      {
        timeout: 60_000,
      },
    );
    const unasked = await chat(urlOf(0), session, message);
    expect(heldFrames(await unasked.end()).map(({ type }) => type)).toEqual([
      "user_message",
      "tool_call",
      "tool_result",
      "assistant",
      "done",
    ]);
    expect(await pendingOf(session)).toEqual([]);
    expect(await runs("archive")).toBe(4);
    // The rule is about this chat and this subject.
    const other = await chat(urlOf(0), session, 'open\ncall ask_pure {"key":"vault"}');
    const { id } = await untilPending(session);
    await post(id, { decision: "reject" });
    await other.end();
    expect(await runs("vault")).toBe(0);
  });
});
