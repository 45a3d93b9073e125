import { traceIdOf, traceparentOf, type TraceEntry } from "@larkline/protocol/trace";
import { TraceLog } from "@larkline/store/operations";
import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { launchBrowser, openPage, signInAs, untilShown } from "./browser.fixture.ts";
import {
  answerOne,
  appId,
  messageOf,
  openWorld,
  passwords,
  secretText,
  session,
  signIn,
  startTestConsole,
  type TestConsole,
  type World,
} from "./console.fixture.ts";

let browser: Browser;
let world: World;
let running: TestConsole;

beforeAll(async () => {
  browser = await launchBrowser(process.env.CHROMIUM_PATH ?? "/usr/bin/chromium");
});
afterAll(async () => {
  await browser?.close();
});
beforeEach(async () => {
  world = openWorld();
  running = await startTestConsole(world);
});
afterEach(async () => {
  await running.close();
  await world.close();
});

function traceIdFor(message: string): string {
  return traceIdOf(traceparentOf({ app: appId, id: message }));
}

/** Leaves the trace of a message as ingress and workers write it. */
async function leaveTrace(message: string, ...more: Partial<TraceEntry>[]): Promise<void> {
  const log = new TraceLog({ redis: world.redis, namespace: world.namespace });
  const startMs = Date.now() - 5_000;
  const subject = { message, chat: "oc_chat", person: "ou_ann" };
  const base = {
    kind: "event",
    service: "ingress",
    instance: "host-7",
    name: "message.received",
  } as const;
  const received: TraceEntry = {
    ...base,
    atMs: startMs,
    data: { ...subject, app: appId, channel: "feishu" },
  };
  const entries = more.map((entry, at) => ({
    ...base,
    atMs: startMs + 100 * (at + 1),
    data: { message },
    ...entry,
  }));
  await log.append([{ traceId: traceIdFor(message), entries: [received, ...entries], subject }]);
}

const appended = (message: string, seq: number) => ({
  name: "message.appended",
  data: { message, session, seq, ahead: 0 },
});

it("a viewer finds a message in a browser, reads why it has no answer, and sees no content", async () => {
  await world.turns.wake(session, (await world.store.append(messageOf("om_1"))).wakeGen ?? 0);
  await leaveTrace("om_1", appended("om_1", 1), {
    name: "model.step",
    kind: "begin",
    span: "3",
    service: "agent-worker",
    data: { session, turn: `${session}-1`, model: "m-1" },
  });
  const { page, problems, close } = await openPage(browser, `${running.url}/why`);
  await signInAs(page, passwords.viewer ?? "");
  await page.getByLabel("Look for").fill("om_1");
  await page.getByRole("button", { name: "Search" }).click();
  await page.getByText(/^Queued for .*: no worker is alive\.$/).waitFor();
  const timeline = page.getByRole("region", { name: "Timeline" });
  await untilShown(timeline.getByRole("row", { name: /Model step .* has not ended/ }));
  expect(await page.getByText(traceIdFor("om_1")).count()).toBe(1);
  expect(await page.content()).not.toContain(secretText);
  await page.getByRole("link", { name: "中文" }).click();
  await page.getByText(/^已排队 .*：没有存活的 agent-worker。$/).waitFor();
  await page.getByRole("link", { name: "为什么没有回答？" }).click();
  await expect.poll(async () => await page.getByLabel("查询").inputValue()).toBe("");
  expect(problems).toEqual([]);
  await close();
});

it("lists the messages of a chat with what became of them, and shows the one that is chosen", async () => {
  await leaveTrace("om_1", {
    name: "message.refused",
    data: { message: "om_1", reason: "not_mentioned" },
  });
  await answerOne(world);
  await leaveTrace("om_2", appended("om_2", 1));
  const client = await signIn(running, passwords.operator);
  const list = await (await client.get("/why?q=oc_chat")).text();
  expect(list).toContain("Ignored: the bot was not mentioned");
  expect(list).toContain('href="/why?q=om_2"');
  expect(list).toContain("Not over yet");
  expect(await (await client.get("/why?q=om_1")).text()).toContain("Not taken");
  const unknown = await client.get("/why?q=om_9%3Cb%3E");
  expect(await unknown.text()).toMatch(/value="om_9&lt;b&gt;"[\s\S]*Nothing is known of it/);
  expect(await (await client.get("/why?q=credit+balance")).text()).toContain(">Nothing found.<");
});

it("lists a message once where its person and their chat have the same name", async () => {
  await leaveTrace("om_1", appended("om_1", 1));
  await leaveTrace("om_2", appended("om_2", 2));
  const named = ["ou_ann", "oc_chat"].map((id) => [id, "Ann Lee"] as const);
  await world.names.keep(new Map(named), Date.now());
  const client = await signIn(running, passwords.operator);
  const list = await (await client.get("/why?q=Ann+Lee")).text();
  expect(list.match(/href="\/why\?q=om_[12]"/g)).toHaveLength(2);
});

it("shows the message of a trace before those that clients have put into it", async () => {
  await leaveTrace("om_1", {
    name: "message.refused",
    data: { message: "om_1", reason: "not_mentioned" },
  });
  const log = new TraceLog({ redis: world.redis, namespace: world.namespace });
  const entries = Array.from({ length: 40 }, (_, at): TraceEntry => {
    const data = { message: `x.${at}`, app: "api", chat: "x", person: "api", channel: "api" };
    return {
      atMs: Date.now(),
      kind: "event",
      service: "ingress",
      instance: "host-7",
      name: "message.received",
      data,
    };
  });
  await log.append([{ traceId: traceIdFor("om_1"), entries }]);
  const client = await signIn(running, passwords.operator);
  const found = await (await client.get(`/why?q=${traceIdFor("om_1")}`)).text();
  expect(found).toContain("Ignored: the bot was not mentioned");
});

it("finds a message of the HTTP API by its session, whose name a client may have taken from a chat", async () => {
  const log = new TraceLog({ redis: world.redis, namespace: world.namespace });
  const data = { message: "oc_chat.1", app: "api", chat: "oc_chat", person: "api", channel: "api" };
  const base = {
    atMs: Date.now(),
    service: "ingress",
    instance: "host-7",
    name: "message.received",
  } as const;
  const traceId = traceIdOf(traceparentOf({ app: "api", id: "oc_chat.1" }));
  const subject = { message: "oc_chat.1", chat: "api.oc_chat", person: "api" };
  await log.append([{ traceId, entries: [{ ...base, kind: "event", data }], subject }]);
  const client = await signIn(running, passwords.operator);
  expect(await (await client.get("/why?q=api.oc_chat")).text()).toContain(traceId);
  expect(await (await client.get("/why?q=oc_chat")).text()).not.toContain(traceId);
});

it("a session and a job lead to it", async () => {
  await leaveTrace("om_1", appended("om_1", 1));
  const client = await signIn(running, passwords.operator);
  const ofSession = await (await client.get(`/why?q=${session}`)).text();
  expect(ofSession).toContain(traceIdFor("om_1"));
  expect(await (await client.get(`/why?q=${session}-1`)).text()).toContain(traceIdFor("om_1"));
  expect(await (await client.get(`/why?q=${session}-2`)).text()).toContain(
    "Nothing is known of it",
  );
});

it("keeps its page for those who are signed in", async () => {
  const answer = await fetch(`${running.url}/why?q=om_1`, { redirect: "manual" });
  expect(answer.status).toBe(303);
  expect(answer.headers.get("location")).toBe("/sign-in?next=%2Fwhy%3Fq%3Dom_1");
});
