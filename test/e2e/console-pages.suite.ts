import { Redis } from "ioredis";
import { describe, expect, it, vi } from "vitest";
import { observer } from "../system/redis-users.ts";
import { operators, system, users } from "./console-deployment.ts";

async function page(path: string): Promise<string> {
  return await (await fetch(`${operators.url}${path}`)).text();
}

/** What everything that changes something has to carry. */
async function csrf(): Promise<string> {
  const { headers } = await fetch(`${operators.url}/queues`);
  return /XSRF-TOKEN=([^;]+)/.exec(headers.get("set-cookie") ?? "")?.[1] ?? "";
}

/** Does what a button of a page does; resolves to the page that comes next. */
async function press(action: string): Promise<string> {
  const body = new URLSearchParams({ csrf: await csrf() });
  return await (await fetch(`${operators.url}${action}`, { method: "POST", body })).text();
}

async function untilIdle(session: string): Promise<void> {
  await vi.waitFor(
    async () => expect(await page(`/sessions/${session}`)).toMatch(/State<\/dt>\s*<dd>idle</),
    {
      timeout: 60_000,
      interval: 50,
    },
  );
}

/** What Redis has refused to the console. */
async function refusals(): Promise<unknown[]> {
  const client = new Redis(users.urlAs(system.redis.port, observer));
  const entries = (await client.call("ACL", "LOG", "100")) as unknown[][]; // one list for each refusal
  client.disconnect();
  return entries.filter((entry) => entry.includes("console"));
}

describe("the console beside everything else, as its own user of Redis", () => {
  it("shows the worker, the runner with its tools, and a session after its answer", async () => {
    const ann = system.person("Ann");
    const session = `${system.appId}.${ann.chatId}`;
    await system.ask(ann, "你好");
    await untilIdle(session);
    // A worker that its machine has stopped for a second counts as dead until it runs again.
    await vi.waitFor(async () => expect(await page("/")).toMatch(/Workers alive<\/dt>\s*<dd>1</), {
      timeout: 60_000,
    });
    expect(await page("/")).toContain('href="/queues/queue/tools-recording"');
    expect(await page("/runners")).toContain("note_once");
    const shown = await page(`/sessions/${session}`);
    expect(shown).toMatch(/Messages of the history<\/dt>\s*<dd>2</);
    expect(shown).not.toContain("你好");
    expect(await press(`/sessions/${session}/content`)).toContain("[你好]");
    await vi.waitFor(
      async () => expect(await page(`/runs?person=${ann.openId}`)).toContain("Answered"),
      {
        timeout: 60_000,
      },
    );
    expect(await page("/approvals")).toContain("No question is open");
    expect(await page("/rules")).toContain("No rule holds");
    expect(await page("/queues/api/queues?page=1&jobsPerPage=10&activeQueue=turns")).toContain(
      '"tools-recording"',
    );
    const answer = system.feishu.messages(ann.chatId).at(-1)?.messageId ?? "";
    expect(answer).toMatch(/^om_/);
    await vi.waitFor(
      async () => expect(await page(`/runs?q=${answer}`)).toContain("Answered</span>"),
      {
        timeout: 60_000,
      },
    );
    expect(await refusals()).toEqual([]);
  });

  it("does with queues what operators may ask for", async () => {
    const token = await csrf();
    for (const action of ["pause", "clean/failed", "clean/wait", "promote", "empty", "resume"]) {
      const url = `${operators.url}/queues/api/queues/tools-recording/${action}`;
      const { status } = await fetch(url, { method: "PUT", headers: { "x-xsrf-token": token } });
      expect([action, status]).toEqual([action, 200]);
    }
    const again = `${operators.url}/queues/api/queues/turns/retry/failed`;
    expect((await fetch(again, { method: "PUT", headers: { "x-xsrf-token": token } })).status).toBe(
      200,
    );
    expect(await refusals()).toEqual([]);
  });

  it("stops a turn that waits for a tool", async () => {
    const ben = system.person("Ben");
    const session = `${system.appId}.${ben.chatId}`;
    const text = 'call note_idempotent {"key":"ben","ms":60000}';
    await system.feishu.sendMessage({
      appId: system.appId,
      chatId: ben.chatId,
      from: ben.openId,
      text,
    });
    await vi.waitUntil(async () => (await system.recorded()).includes("idempotent ben"), {
      timeout: 60_000,
    });
    expect(await press(`/sessions/${session}/cancel`)).toContain("was asked to stop");
    await untilIdle(session);
    expect(await refusals()).toEqual([]);
  });
});
