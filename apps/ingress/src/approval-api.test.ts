import { afterEach, describe, expect, it } from "vitest";
import type { Approval } from "@larkline/protocol/approval";
import { approvalFor, suspendOn } from "./approval.fixture.ts";
import {
  postChat,
  startTestIngress,
  type TestIngress,
  type TestOptions,
} from "./ingress.fixture.ts";
import { connectSharedRedis } from "./redis.fixture.ts";

const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

interface Waiting {
  ingress: TestIngress;
  approval: Approval;
  /** Asks the API; resolves with status and body. */
  call(path: string, init?: RequestInit): Promise<{ status: number; body: unknown }>;
  decide(body: unknown, id?: string): Promise<{ status: number; body: unknown }>;
}

const session = "api.s1";

/** A run of session `s1` that waits for a decision. */
async function waiting(
  fields: Partial<Approval> = {},
  options: TestOptions = {},
): Promise<Waiting> {
  const { memory, close } = connectSharedRedis();
  closing.push(close);
  const ingress = await startTestIngress({ ...options, shared: memory });
  closing.push(ingress.close);
  const { API_TOKEN: token } = options.env ?? {};
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const stream = await postChat(ingress, { message: "deploy", session_id: "s1" }, headers);
  closing.push(async () => stream.leave());
  const { gen } = await ingress.store.summary(session);
  const claim = await ingress.store.claim(session, gen, "test");
  if (claim === undefined) throw new Error("nothing to do");
  const approval = approvalFor(claim, "s1", fields);
  await suspendOn(ingress, claim, [approval]);
  ingress.wakes.length = 0;
  const call: Waiting["call"] = async (path, init = {}) => {
    const response = await fetch(`${ingress.url}${path}`, {
      ...init,
      headers: { ...headers, ...init.headers },
    });
    return { status: response.status, body: await response.json() };
  };
  const decide: Waiting["decide"] = async (body, id = approval.id) =>
    await call(`/v1/approvals/${id}`, {
      method: "POST",
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  return { ingress, approval, call, decide };
}

async function told({ store }: TestIngress) {
  const { gen } = await store.summary(session);
  return (await store.claim(session, gen, "test"))?.control ?? [];
}

describe("GET /v1/approvals", () => {
  it("lists what a session waits for, secrets masked, and nothing of other sessions", async () => {
    const { call, approval } = await waiting({
      arguments: { to: "prod", key: "s3cret" },
      secrets: ["key"],
      remember: { tool: "deploy", pattern: "prod" },
    });
    expect(await call("/v1/approvals?session_id=s1")).toEqual({
      status: 200,
      body: {
        approvals: [
          {
            id: approval.id,
            kind: "call",
            run_id: "api.s1-1",
            call_id: "c1",
            tool: "deploy",
            arguments: { to: "prod", key: "***" },
            reason: "",
            risk: "medium",
            decisions: ["approve", "reject"],
            may_remember: true,
            created_at: approval.createdAtMs,
            expires_at: approval.expiresAtMs,
            state: "pending",
          },
        ],
      },
    });
    expect(await call("/v1/approvals?session_id=s2")).toEqual({
      status: 200,
      body: { approvals: [] },
    });
  });

  it.each([
    [""],
    ["?session_id="],
    ["?session_id=a.b"],
    ["?session_id=a&session_id=b"],
    [`?session_id=${"a".repeat(65)}`],
  ])("refuses %j", async (query) => {
    const { call } = await waiting();
    expect(await call(`/v1/approvals${query}`)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("session_id") },
    });
  });
});

describe("POST /v1/approvals/:id", () => {
  it("approves in the name of the requester: the session gets the decision and is woken", async () => {
    const { ingress, approval, call, decide } = await waiting({
      remember: { tool: "deploy", pattern: "prod" },
    });
    const decided = await decide({ decision: "approve", note: "go", remember: true });
    expect(decided).toMatchObject({
      status: 200,
      body: { approval: { id: approval.id, state: "approved" } },
    });
    expect(ingress.wakes).toEqual([{ session, gen: expect.any(Number) }]);
    const decision = { decision: "approve", by: { id: "api" }, note: "go", remember: true };
    expect(await told(ingress)).toMatchObject([
      { type: "decision", state: "approved", decisions: [decision] },
    ]);
    // A worker writes the rule when it has looked at the decision.
    expect(await ingress.rules.inForce("api", "s1")).toEqual([]);
    expect(await call("/v1/approvals?session_id=s1")).toMatchObject({ body: { approvals: [] } });
  });

  it("rejects for this time alone, and a second decision is refused with what was decided", async () => {
    const { ingress, decide } = await waiting({ remember: { tool: "deploy", pattern: "prod" } });
    expect(await decide({ decision: "reject", remember: true })).toMatchObject({
      status: 200,
      body: { approval: { state: "rejected" } },
    });
    expect(await decide({ decision: "approve" })).toMatchObject({
      status: 409,
      body: { error: "no pending approval", approval: { state: "rejected" } },
    });
    expect(await told(ingress)).toMatchObject([
      { state: "rejected", decisions: [expect.not.objectContaining({ remember: true })] },
    ]);
  });

  it("AL-41: after the expiry is refused, and the session gets the expiry", async () => {
    const { ingress, approval, decide } = await waiting({ expiresAtMs: Date.now() + 30 });
    await expect.poll(() => Date.now()).toBeGreaterThan(approval.expiresAtMs);
    expect(await decide({ decision: "approve" })).toMatchObject({
      status: 409,
      body: { approval: { state: "expired" } },
    });
    expect(await told(ingress)).toMatchObject([{ state: "expired" }]);
  });

  it("AL-42: is refused where others have to decide", async () => {
    const deciders = { requester: false, people: ["ou_ann"], roles: [], fourEyes: false, count: 1 };
    const { ingress, decide } = await waiting({ deciders });
    expect(await decide({ decision: "approve" })).toMatchObject({
      status: 403,
      body: { approval: { state: "pending" } },
    });
    expect(await told(ingress)).toEqual([]);
  });

  it.each([
    ["an id that is none", "no-id", 404],
    ["an unknown id", "f".repeat(32), 404],
  ])("%s is not found", async (_, id, status) => {
    const { decide } = await waiting();
    expect(await decide({ decision: "approve" }, id)).toEqual({
      status,
      body: { error: "no pending approval" },
    });
  });

  it("a word of another kind of question is not found, and the question stays", async () => {
    const { call, decide } = await waiting();
    expect(await decide({ decision: "retry" })).toMatchObject({ status: 404 });
    expect(await call("/v1/approvals?session_id=s1")).toMatchObject({
      body: { approvals: [{ state: "pending" }] },
    });
  });

  it("answers what became of a call", async () => {
    const { ingress, call, decide } = await waiting({ kind: "outcome" });
    const listed = await call("/v1/approvals?session_id=s1");
    expect(listed).toMatchObject({
      body: { approvals: [{ decisions: ["retry", "done", "abort"] }] },
    });
    expect(await decide({ decision: "done", note: "ticket 7" })).toMatchObject({ status: 200 });
    expect(await told(ingress)).toMatchObject([
      { state: "done", decisions: [{ note: "ticket 7" }] },
    ]);
  });

  it.each([
    ["no JSON", "{", 400],
    ["no object", "[]", 400],
    ["no decision", {}, 400],
    ["an unknown decision", { decision: "Approve" }, 400],
    ["a note that is too long", { decision: "reject", note: "x".repeat(1_001) }, 400],
    ["a body that is too large", { decision: "reject", note: "x".repeat(1_100_000) }, 413],
  ])("%s is refused, and nothing changes", async (_, body, status) => {
    const { call, decide } = await waiting();
    expect(await decide(body)).toMatchObject({ status, body: { error: expect.any(String) } });
    expect(await call("/v1/approvals?session_id=s1")).toMatchObject({
      body: { approvals: [{ state: "pending" }] },
    });
  });

  it("says in time that nothing was taken while the store hangs", async () => {
    const { ingress, call, decide } = await waiting();
    ingress.trouble.hangs = "find";
    const answers = await Promise.all([
      decide({ decision: "approve" }),
      call("/v1/approvals?session_id=s1"),
    ]);
    expect(answers).toMatchObject([
      { status: 503, body: { error: "not taken, try again" } },
      { status: 503 },
    ]);
    ingress.trouble.hangs = "decide";
    expect(await decide({ decision: "approve" })).toMatchObject({
      status: 503,
      body: { error: expect.stringContaining("not certain") },
    });
  });

  it("takes the token that the API asks for, and no other", async () => {
    const { call, decide } = await waiting({}, { env: { API_TOKEN: "a-token-of-the-api" } });
    const wrong = { headers: { authorization: "Bearer other" } };
    expect((await call("/v1/approvals?session_id=s1", wrong)).status).toBe(401);
    expect(
      (await call(`/v1/approvals/${"f".repeat(32)}`, { ...wrong, method: "POST", body: "{}" }))
        .status,
    ).toBe(401);
    expect((await decide({ decision: "approve" })).status).toBe(200);
  });

  it("is not open to pages of other origins without a token", async () => {
    const { call } = await waiting();
    const headers = { origin: "https://evil.example" };
    expect((await call("/v1/approvals?session_id=s1", { headers })).status).toBe(403);
  });
});

describe("/v1/permissions", () => {
  const remember = { tool: "deploy", pattern: "prod" };

  /** A session whose approval holds from now on. */
  async function remembered() {
    const started = await waiting({ remember, chatId: session });
    const { id: ruleId, app, requester } = started.approval;
    const rule = {
      v: 1,
      id: ruleId,
      app,
      chatId: session,
      ...remember,
      author: requester,
      createdAtMs: Date.now(),
    } as const;
    await started.ingress.rules.add({ ...rule, expiresAtMs: Date.now() + 60_000 });
    const revoke = async (id: string, sessionId = "s1") =>
      (
        await fetch(`${started.ingress.url}/v1/permissions/${id}?session_id=${sessionId}`, {
          method: "DELETE",
        })
      ).status;
    return { ...started, revoke };
  }

  it("lists what was remembered in this session, and takes it back at once", async () => {
    const { approval, call, revoke } = await remembered();
    const rule = {
      id: approval.id,
      ...remember,
      created_at: expect.any(Number),
      expires_at: expect.any(Number),
    };
    expect(await call("/v1/permissions?session_id=s1")).toEqual({
      status: 200,
      body: { rules: [rule] },
    });
    expect(await call("/v1/permissions?session_id=s2")).toEqual({
      status: 200,
      body: { rules: [] },
    });
    expect(await revoke(approval.id, "s2")).toBe(404);
    expect(await revoke("f".repeat(32))).toBe(404);
    expect(await revoke("no-id")).toBe(404);
    expect(await revoke(approval.id)).toBe(204);
    expect(await revoke(approval.id)).toBe(404);
    expect(await call("/v1/permissions?session_id=s1")).toMatchObject({ body: { rules: [] } });
  });

  it("refuses requests without a session, and those without the token", async () => {
    const { call } = await waiting({}, { env: { API_TOKEN: "a-token-of-the-api" } });
    expect(await call("/v1/permissions")).toMatchObject({ status: 400 });
    const other = { headers: { authorization: "Bearer other" } };
    expect(await call("/v1/permissions?session_id=s1", other)).toMatchObject({ status: 401 });
    const init = { ...other, method: "DELETE" };
    expect(await call(`/v1/permissions/${"f".repeat(32)}?session_id=s1`, init)).toMatchObject({
      status: 401,
    });
  });
});
