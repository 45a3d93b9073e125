import { turnIdOf } from "@larkline/protocol";
import { blankTurn } from "@larkline/protocol/turn";
import { type DeadLetter, DeadLetters, type OutboxRecord } from "@larkline/store";
import { EventWatchReports, InstanceDirectory } from "@larkline/store/operations";
import { RateGovernor } from "@larkline/store/platform";
import { afterEach, beforeEach, expect, it } from "vitest";
import {
  answerOne,
  appId,
  auditOf,
  messageOf,
  openWorld,
  passwords,
  questionOf,
  secretText,
  session,
  signIn,
  startTestConsole,
  type Client,
  type TestConsole,
  type World,
} from "./console.fixture.ts";

let world: World;
let running: TestConsole;
let operator: Client;
let viewer: Client;

beforeEach(async () => {
  world = openWorld();
  running = await startTestConsole(world);
  [operator, viewer] = await Promise.all([
    signIn(running, passwords.operator),
    signIn(running, passwords.viewer ?? ""),
  ]);
});

afterEach(async () => {
  await running.close();
  await world.close();
});

const textOf = async (response: Promise<Response>): Promise<string> =>
  (await (await response).text()).replaceAll(/<[^>]*>/g, " ").replaceAll(/\s+/g, " ");

const at = encodeURIComponent(session);
const turnId = turnIdOf(session, 1);

const inFeishu = {
  channel: "feishu",
  app: appId,
  chatId: "oc_chat",
  messageId: "om_1",
  inThread: false,
} as const;

async function claimOne() {
  const { wakeGen = 0 } = await world.store.append({ ...messageOf("om_1"), reply: inFeishu });
  const claim = await world.store.claim(session, wakeGen, "worker");
  if (claim === undefined) throw new Error("nothing to claim");
  return claim;
}

const letters = () => new DeadLetters(world);

const replyRecord: OutboxRecord = {
  v: 1,
  id: turnId,
  uuid: "u-1",
  session,
  target: { app: appId, chatId: "oc_chat", messageId: "om_1", inThread: false },
  text: secretText,
  createdAtMs: Date.now(),
  attempts: 3,
  uncertainSinceMs: 0,
};

async function abandonReply(): Promise<string> {
  const { lease } = await world.store.outbox.push(replyRecord, "om_1");
  if (lease === undefined) throw new Error("the outbox is taken");
  await letters().moveToDeadLetters(lease, "im.message.reply forbidden 230002");
  return `/dead-letters/${at}/${encodeURIComponent(`reply:${turnId}`)}`;
}

async function giveUpMessage(): Promise<string> {
  const message = { ...messageOf("om_1"), reply: inFeishu };
  const letter: DeadLetter = {
    v: 1,
    kind: "message",
    id: `turn:${turnId}`,
    session,
    reason: "its runs crashed 5 times",
    atMs: Date.now(),
    turnId,
    messageId: "om_1",
    message,
  };
  await letters().add(letter);
  return `/dead-letters/${at}/${encodeURIComponent(letter.id)}`;
}

it("lists what sessions do and have done, and finds them by key, chat and person", async () => {
  await answerOne(world);
  await world.store.append({
    ...messageOf("om_2"),
    session: `${appId}.oc_other`,
    sender: { id: "ou_bob" },
  });
  const page = await textOf(viewer.get("/sessions"));
  expect(page).toMatch(
    new RegExp(
      `Doing something.*${appId}\\.oc_other queued 1 0 0.*Finished a turn last.*${session} idle 0 0 2`,
    ),
  );
  expect(page).not.toContain(secretText);
  expect((await viewer.get(`/sessions?search=${at}`)).headers.get("location")).toBe(
    `/sessions/${session}`,
  );
  expect(await textOf(viewer.get("/sessions?search=oc_other"))).toMatch(
    /Found.*oc_other queued.*Doing something/,
  );
  expect(await textOf(viewer.get("/sessions?search=ou_bob"))).toMatch(
    /Found.*oc_other queued.*Doing something/,
  );
  expect(await textOf(viewer.get("/sessions?search=ou_nobody"))).toContain("No session was found.");
});

it("shows who waits in a session, what it asks and what it has not sent, without the words", async () => {
  await claimOne();
  await world.store.append(messageOf("om_2"));
  await world.approvals.add(questionOf("1".repeat(32)));
  await world.store.outbox.push(replyRecord, "om_9");
  const page = await textOf(viewer.get(`/sessions/${at}`));
  expect(page).toMatch(/Inbox.*1 ou_ann.*text, 23 characters, hidden.*2 ou_ann/);
  expect(page).toMatch(/Open approvals.*deploy Ann/);
  expect(page).toMatch(new RegExp(`Replies not delivered yet.*${turnId}.*hidden`));
  expect(page).not.toContain(secretText);
  expect(page).not.toContain("Reset");
  expect(await textOf(operator.post(`/sessions/${at}/content`))).toContain(secretText);
});

it("shows the turns that wait for people while others of the group are answered, and whose approval each waits for", async () => {
  const claim = await claimOne();
  const asked = questionOf("2".repeat(32), { kind: "call", createdAtMs: Date.now() - 300_000 });
  const { head, epoch } = claim;
  if (head === undefined) throw new Error("no head");
  const call = {
    id: "c1",
    name: "deploy",
    arguments: {},
    state: "waiting_approval",
    approvalId: asked.id,
  } as const;
  const blank = blankTurn({ turnId, message: head.message, startedAtMs: Date.now() });
  const write = {
    session,
    epoch,
    history: [],
    events: [],
    consumed: 0,
    open: [],
    approvals: [asked],
  };
  await world.store.save({
    ...write,
    turn: { ...blank, steps: 1, calls: [call] },
    mode: "suspend",
    waits: "ou_ann",
  });
  const { wakeGen = 0 } = await world.store.append({
    ...messageOf("om_2"),
    sender: { id: "ou_bob" },
  });
  expect(await world.store.claim(session, wakeGen, "worker")).toMatchObject({ head: { seq: 2 } });
  expect(await textOf(viewer.get(`/sessions/${at}`))).toMatch(
    /Turns set aside.*others of the group are answered.*1 ou_ann deploy ou_boss 5 minutes ago/,
  );
  expect(await textOf(viewer.get("/sessions"))).toMatch(/running \+ 1 set aside/);
  await world.approvals.decide(session, asked.id, { decision: "approve", by: { id: "ou_boss" } });
  expect(await textOf(viewer.get(`/sessions/${at}`))).toMatch(
    /Turns set aside.*1 ou_ann decided already/,
  );
});

it("resets a session after asking, and says what came of it", async () => {
  await claimOne();
  expect(await textOf(operator.get(`/sessions/${at}/reset`))).toContain(
    "Then a new conversation begins",
  );
  expect(world.ordered).toEqual([]);
  world.results.push({ result: "done", turnId }, { result: "nothing" });
  expect(await textOf(operator.post(`/sessions/${at}/reset`))).toContain(
    "The session is reset, and the turn",
  );
  expect(await textOf(operator.post(`/sessions/${at}/reset`))).toContain("no turn was under way");
  const order = { v: 1, by: "console", act: { do: "reset", session } };
  expect(world.ordered).toEqual([order, order]);
});

it("a session that no version can read is shown as such", async () => {
  await claimOne();
  const [key = ""] = await world.redis.keys(`{${world.namespace}:*}:in:${session}`);
  await (world.redis as { lset(key: string, at: number, value: string): Promise<unknown> }).lset(
    key,
    0,
    '1:{"v":9}',
  );
  expect(await textOf(operator.get("/sessions"))).toContain("unreadable");
  expect(await textOf(operator.get(`/sessions/${at}`))).toContain("cannot be read");
});

it("says that a checkpoint and settings are damaged, and why", async () => {
  await claimOne();
  const [key = ""] = await world.redis.keys(`{${world.namespace}:*}:state:${session}`);
  await world.redis.hset(key, { turn: '1.1.seal.{"v":9}', settings: "{{{" });
  expect(await textOf(operator.get("/sessions"))).toContain("running, damaged");
  const page = await textOf(operator.get(`/sessions/${at}`));
  expect(page).toMatch(
    /The checkpoint of the turn is damaged: stored turn is not readable: .*\(16 bytes\)/,
  );
  expect(page).toContain("The settings of the session are damaged: they are no JSON (3 bytes)");
});

it("orders that the waiting messages are dropped, after asking", async () => {
  await claimOne();
  expect(await textOf(operator.get(`/sessions/${at}/drop`))).toContain("leave the inbox");
  expect(await textOf(operator.post(`/sessions/${at}/drop`))).toContain(
    "The waiting messages are dropped.",
  );
  expect(world.ordered).toEqual([{ v: 1, by: "console", act: { do: "drop", session } }]);
});

it("orders that a reply that was given up is sent again, and says to whom it was done already", async () => {
  const path = await abandonReply();
  expect(await textOf(viewer.get("/dead-letters"))).toMatch(
    /Undelivered reply.*im\.message\.reply forbidden 230002/,
  );
  expect(await textOf(viewer.get(path))).not.toContain(secretText);
  expect(await textOf(operator.post(`${path}/content`))).toContain(secretText);
  expect(await auditOf(world, "content_shown")).toMatchObject([
    { session, letterId: `reply:${turnId}` },
  ]);
  world.results.push({ result: "done" }, { result: "nothing" }, { result: "nothing" });
  const answers = await Promise.all(
    [1, 2, 3].map(async () => await textOf(operator.post(`${path}/retry`))),
  );
  expect(answers.filter((text) => text.includes("The reply is in its outbox again."))).toHaveLength(
    1,
  );
  const order = {
    v: 1,
    by: "console",
    act: { do: "retry_letter", session, letterId: `reply:${turnId}` },
  };
  expect(world.ordered.slice(1)).toEqual([order, order, order]);
});

it("orders that a message that was given up runs again, after asking", async () => {
  const path = await giveUpMessage();
  expect(await textOf(operator.get(`${path}/retry`))).toContain("may be taken once more");
  await operator.post(`${path}/retry`);
  expect(world.ordered).toMatchObject([
    { act: { do: "retry_letter", session, letterId: `turn:${turnId}` } },
  ]);
});

it("orders that a letter is discarded, and a viewer changes nothing", async () => {
  const path = await abandonReply();
  for (const act of ["retry", "discard", "content"]) {
    expect((await viewer.post(`${path}/${act}`)).status).toBe(403);
  }
  expect(await textOf(viewer.get(path))).not.toContain("Discard");
  world.results.push({ result: "done" }, { result: "nothing" });
  expect(await textOf(operator.post(`${path}/discard`))).toContain("The letter is discarded.");
  expect(await textOf(operator.post(`${path}/discard`))).toContain(
    "That letter has been dealt with already.",
  );
  const order = {
    v: 1,
    by: "console",
    act: { do: "discard_letter", session, letterId: `reply:${turnId}` },
  };
  expect(world.ordered).toEqual([order, order]);
});

it("shows what is left of the platform's limits, without the token", async () => {
  const governor = new RateGovernor(world);
  const month = new Date(Date.now() + 8 * 3_600_000).toISOString().slice(0, 7);
  for (let calls = 0; calls < 3; calls += 1) await governor.countCall(appId, month);
  await governor.pause(`${appId}:api:im.message.reply`, 60_000);
  await world.redis.set(
    `{${world.namespace}}:token:feishu-tenant-token https://open.feishu.cn ${appId}`,
    "t-secret",
    "PX",
    600_000,
  );
  const response = await viewer.get("/feishu");
  const page = await textOf(Promise.resolve(response));
  expect(page).toMatch(/Calls of this month 3/);
  expect(page).toMatch(/Access token good for (9|10) minutes/);
  expect(page).toMatch(/im\.message\.reply 0 \/ 50 refused by the platform, paused for/);
  expect(page).toMatch(/im\.message\.create 50 \/ 50 free/);
  expect(page).not.toContain("t-secret");
});

it("says which processes take events, and whose events an unknown instance takes", async () => {
  const directory = new InstanceDirectory(world);
  const instance = {
    service: "ingress",
    host: "node-1",
    version: "1.2.3",
    startedAtMs: Date.now() - 60_000,
    apps: [appId],
  };
  const feeds = [
    { app: appId, transport: "websocket", state: "connected", lastEventAtMs: Date.now() - 300_000 },
  ] as const;
  const clock = "the clock of this machine is 3 s ahead of Redis";
  await directory.announce({ ...instance, id: "ingress-a", feeds, clock }, 30_000);
  await directory.announce({ ...instance, id: "ingress-b", feeds }, -1_000);
  const before = await textOf(viewer.get("/feishu"));
  expect(before).toContain(
    "Long connections of this deployment 1, last event 5 minutes ago Last compared not compared yet",
  );
  const overview = await textOf(viewer.get("/"));
  expect(overview).toMatch(/ Ingress 1 /);
  expect(overview).toContain(`ingress node-1: clocks differ: ${clock}`);
  expect(overview).not.toContain("unknown instance");
  const missed = [{ messageId: "om_lost", chatId: "oc_chat", createdAtMs: Date.now() - 600_000 }];
  await new EventWatchReports(world).save({
    app: appId,
    checkedAtMs: Date.now(),
    compared: 4,
    missed,
  });
  expect(await textOf(viewer.get("/feishu"))).toMatch(
    /An unknown instance probably takes events\. Messages that never came to this deployment: 1\..*om_lost/,
  );
  expect(await textOf(viewer.get("/"))).toContain(
    `${appId} An unknown instance probably takes events.`,
  );
});

it("speaks Chinese on all of these pages, with a blank between it and numbers", async () => {
  const path = await abandonReply();
  for (const page of ["/sessions", "/dead-letters", path, "/feishu"]) {
    const response = await fetch(`${running.url}${page}`, {
      headers: { cookie: `${viewer.cookie}; larkline_language=zh` },
    });
    expect(response.status).toBe(200);
    const text = await response.text();
    expect(text).toMatch(/<html lang="zh-CN">/);
    expect(text.replaceAll(/<[^>]*>/g, "\n"), page).not.toMatch(
      /\d\p{Script=Han}|\p{Script=Han}\d/u,
    );
  }
});

it.each([
  ["/agents/pause", { what: "agent", name: "default" }, "/agents?note=nowPaused"],
  ["/rules/revoke", { app: appId, rule: "r1" }, "/rules?note=revoked"],
  ["/schedules", { schedule: "s1", do: "pause_schedule" }, "/schedules?note=schedulePaused"],
  ["/runners/forget", { runner: "none" }, "/runners?note=runnerStays"],
  ["/dead-letters/none/l1/retry", {}, "/dead-letters?note=letterGone"],
  [`/sessions/${at}/content`, {}, `/sessions/${at}?content=shown`],
])("%s leads to a page that may be loaded again", async (path, fields, to) => {
  const answer = await fetch(`${running.url}${path}`, {
    method: "POST",
    headers: { cookie: operator.cookie },
    body: new URLSearchParams({ csrf: operator.csrf, ...fields }),
    redirect: "manual",
  });
  expect([answer.status, answer.headers.get("location")]).toEqual([303, to]);
  const ordered = world.ordered.length;
  await operator.get(to);
  await operator.get(to);
  expect(world.ordered.slice(ordered).filter(({ act }) => act.do !== "note")).toEqual([]);
});

it("shows no content to viewers who ask for it in the address", async () => {
  await answerOne(world);
  expect(await textOf(viewer.get(`/sessions/${at}?content=shown`))).not.toContain(secretText);
  expect(await auditOf(world, "content_shown")).toEqual([]);
});

it("pauses and resumes agents and tools, with the name that the operator claims; viewers see it", async () => {
  const ann = await signIn(running, passwords.operator, "  Ann\n<b>Lee</b> ");
  const agent = { what: "agent", name: "default" };
  expect(await textOf(ann.get("/"))).toContain("Ann &lt;b&gt;Lee&lt;/b&gt;, Operator");
  expect(await textOf(ann.get("/agents"))).toMatch(/default – Works/);
  expect(await textOf(ann.post("/agents/pause", agent))).toMatch(
    /It is paused\. .* default – paused , Ann &lt;b&gt;/,
  );
  expect(await textOf(operator.post("/agents/pause", agent))).toContain("It was paused already.");
  const seen = await textOf(viewer.get("/agents"));
  expect(seen).toMatch(/default – paused , Ann/);
  expect(seen).not.toContain("Resume");
  expect(await textOf(viewer.get("/"))).toMatch(/Agent default paused \(Ann/);
  expect((await viewer.post("/agents/resume", agent)).status).toBe(403);
  expect(await textOf(operator.post("/agents/resume", agent))).toContain("It works again.");
  expect(await textOf(operator.post("/agents/resume", agent))).toContain("It is not paused.");
  world.results.push({ result: "not_possible" });
  expect(await textOf(operator.post("/agents/pause", { what: "tool", name: "gone" }))).toContain(
    "no such agent or tool",
  );
  expect((await operator.post("/agents/pause", { what: "person", name: "Bo" })).status).toBe(404);
  expect(await auditOf(world, "agent_paused")).toMatchObject([
    { agent: "default", userId: "console:Ann <b>Lee</b>" },
  ]);
  expect(await auditOf(world, "agent_resumed")).toMatchObject([
    { agent: "default", userId: "console" },
  ]);
});

it("warns of a tool that no model is offered, and says why", async () => {
  const [about, schemas] = [
    { effect: "pure" as const, requiresApproval: false, timeoutMs: 30_000 },
    ["object", "array"],
  ];
  const tools = schemas.map((type) => ({
    ...about,
    spec: { name: `takes_${type}`, description: "Takes.", inputSchema: { type } },
  }));
  await world.directory.announce({ runner: "ops", instance: "ops-1", tools }, 60_000);
  const page = await textOf(viewer.get("/agents"));
  expect(page).toMatch(/takes_array ops Works No model is offered it: its arguments are no object/);
  expect(page.match(/No model is offered it/g)).toHaveLength(1);
});

it("an operator looks at a call and decides it where the policy says so; others are not offered", async () => {
  await claimOne();
  const deciders = {
    requester: false,
    people: [],
    roles: [],
    operators: true,
    fourEyes: false,
    count: 1,
  };
  const asked = questionOf("1".repeat(32), { kind: "call", secrets: ["token"], deciders });
  const secret = { ...asked, arguments: { ...asked.arguments, token: "xoxb-1" } };
  await world.approvals.add(secret);
  await world.approvals.add(
    questionOf("2".repeat(32), { kind: "call", createdAtMs: Date.now() + 1 }),
  );
  const path = `/approvals/${at}/${asked.id}`;
  const listed = await textOf(operator.get("/approvals"));
  expect(listed).toContain("operators of the console");
  expect(listed.match(/Look and decide/g)).toHaveLength(1);
  expect(await textOf(viewer.get("/approvals"))).not.toContain("Look and decide");
  const shown = await textOf(operator.post(`${path}/content`));
  expect(shown).toContain(secretText);
  expect(shown).not.toContain("xoxb-1");
  expect(await auditOf(world, "content_shown")).toMatchObject([{ callId: "c1", tool: "deploy" }]);
  expect((await operator.post(`/approvals/${at}/${"2".repeat(32)}/content`)).status).toBe(404);
  const fields = { word: "approve", hash: asked.argumentsHash, app: appId };
  expect((await viewer.post(`${path}/decide`, fields)).status).toBe(403);
  world.ordered.splice(0);
  world.results.push({ result: "not_possible" }, { result: "done" }, { result: "nothing" });
  expect(await textOf(operator.post(`${path}/decide`, { ...fields, hash: "x" }))).toContain(
    "lets no operator decide",
  );
  expect(await textOf(operator.post(`${path}/decide`, fields))).toContain(
    "Your decision is stored.",
  );
  expect(await textOf(operator.post(`${path}/decide`, fields))).toContain("It is over");
  const act = { do: "decide", app: appId, approvalId: asked.id, word: "approve" };
  expect(world.ordered).toMatchObject([
    { by: "console", act: { ...act, argumentsHash: "x" } },
    { by: "console", act: { ...act, argumentsHash: asked.argumentsHash } },
    { by: "console", act: { ...act, argumentsHash: asked.argumentsHash } },
  ]);
});
