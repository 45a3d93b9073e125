import { Redis } from "ioredis";
import { expect, it, vi } from "vitest";
import { write } from "../system/answers.ts";
import { answerTo } from "../system/sending.ts";
import { observer } from "../system/redis-users.ts";
import { operators, system, users } from "./console-deployment.ts";

async function page(): Promise<string> {
  const html = await (await fetch(`${operators.url}/agents`)).text();
  return html.replaceAll(/<[^>]*>/g, " ").replaceAll(/\s+/g, " ");
}

async function press(deed: "pause" | "resume", fields: Record<string, string>): Promise<string> {
  const { headers } = await fetch(`${operators.url}/queues`);
  const csrf = /XSRF-TOKEN=([^;]+)/.exec(headers.get("set-cookie") ?? "")?.[1] ?? "";
  const body = new URLSearchParams({ csrf, ...fields });
  return await (await fetch(`${operators.url}/agents/${deed}`, { method: "POST", body })).text();
}

/** What Redis has refused to the two that pauses concern. */
async function refusals(): Promise<unknown[]> {
  const client = new Redis(users.urlAs(system.redis.port, observer));
  const entries = (await client.call("ACL", "LOG", "100")) as unknown[][]; // one list for each refusal
  client.disconnect();
  return entries.filter((entry) => entry.includes("console") || entry.includes("agent-worker"));
}

it("an agent that an operator pauses stays paused over the death of its worker, until it is resumed", async () => {
  const ann = system.person("Ann");
  const agent = { what: "agent", name: "default" };
  expect(await press("pause", agent)).toContain("It is paused.");
  expect(await page()).toMatch(/default – paused , console,/);
  // Workers learn it a moment later.
  await vi.waitFor(async () => expect(await system.ask(ann, "yet?")).toContain("paused"), {
    timeout: 60_000,
  });
  const written = await write(system, ann, "hello there");
  expect(await answerTo(system, written)).toContain("An operator has paused the agent default");
  await vi.waitFor(
    async () => {
      const why = await (await fetch(`${operators.url}/why?q=${written.messageId}`)).text();
      expect(why).toMatch(
        /console paused the agent default at [\d:]+ UTC, .* ago; the reply says so\./,
      );
    },
    { timeout: 60_000 },
  );
  await system.workers[0]?.kill();
  system.workers.splice(0, 1, await system.start("agent-worker"));
  expect(await system.ask(ann, "are you there now?")).toContain(
    "An operator has paused the agent default",
  );
  expect(await press("resume", agent)).toContain("It works again.");
  await vi.waitFor(async () => expect(await system.ask(ann, "and now?")).not.toContain("paused"), {
    timeout: 60_000,
  });
  expect(await refusals()).toEqual([]);
});

it("a tool that an operator pauses is not called", async () => {
  const ben = system.person("Ben");
  const tool = { what: "tool", name: "note_once" };
  expect(await press("pause", tool)).toContain("It is paused.");
  await vi.waitFor(
    async () =>
      expect(await system.ask(ben, 'call note_once {"key":"yet"}')).not.toContain(
        'ok:{"key":"yet"}',
      ),
    { timeout: 60_000 },
  );
  await system.ask(ben, 'call note_once {"key":"paused"}');
  expect(await system.recorded()).not.toContain("once paused");
  expect(await press("resume", tool)).toContain("It works again.");
  await vi.waitFor(
    async () => {
      await system.ask(ben, 'call note_once {"key":"resumed"}');
      expect(await system.recorded()).toContain("once resumed");
    },
    { timeout: 60_000 },
  );
  expect(await refusals()).toEqual([]);
});
