import { Redis } from "ioredis";
import { startModelServer } from "@larkline/testkit";
import { expect, it, onTestFinished, vi } from "vitest";
import { write } from "../system/answers.ts";
import { observer } from "../system/redis-users.ts";
import { answerTo } from "../system/sending.ts";
import { operators, system, users } from "./console-deployment.ts";

async function press(
  deed: "preview" | "apply" | "back",
  fields: Record<string, string>,
): Promise<string> {
  return await post(`/agents/default/${deed}`, fields);
}

async function post(path: string, fields: Record<string, string>): Promise<string> {
  const { headers } = await fetch(`${operators.url}/queues`);
  const csrf = /XSRF-TOKEN=([^;]+)/.exec(headers.get("set-cookie") ?? "")?.[1] ?? "";
  const body = new URLSearchParams({ csrf, ...fields });
  return await (await fetch(`${operators.url}${path}`, { method: "POST", body })).text();
}

/** Previews the form, and applies what the preview would apply. */
async function change(
  fields: Record<string, string>,
  deed: "preview" | "back" = "preview",
): Promise<string> {
  const preview = await press(deed, { everyTool: "on", ...fields });
  const [form = ""] =
    /<form method="post" action="\/agents\/default\/apply">.*?<\/form>/s.exec(preview) ?? [];
  const hidden = [...form.matchAll(/name="(base|change|note)" value="([^"]*)"/g)].map(
    ([, name = "", value = ""]) => [name, value.replaceAll("&quot;", '"')],
  );
  return await press("apply", Object.fromEntries(hidden));
}

/** What the model read for a message, in the order of its steps. */
function prompts(text: string): string[] {
  const requests = system.model.requests.filter(({ messages }) =>
    messages.some((message) => message.role === "user" && message.text.includes(text)),
  );
  return requests.map((request) => request.system);
}

async function promptOf(text: string): Promise<string | undefined> {
  await system.ask(system.person("Ann"), text);
  return prompts(text).at(-1);
}

/** What Redis has refused to the two that versions concern. */
async function refusals(): Promise<unknown[]> {
  const client = new Redis(users.urlAs(system.redis.port, observer));
  const entries = (await client.call("ACL", "LOG", "100")) as unknown[][]; // one list for each refusal
  client.disconnect();
  return entries.filter((entry) => entry.includes("console") || entry.includes("agent-worker"));
}

it("a change counts without a restart on every worker, and a message keeps its version when its worker is killed", async () => {
  expect(await change({ instructions: "You are the first version." })).toContain("It is applied.");
  await vi.waitFor(async () => expect(await promptOf("are you new?")).toContain("first version"), {
    timeout: 60_000,
  });
  const key = "versions";
  const text = `wait for it\ncall hold_pure {"key":"${key}"}`;
  const written = await write(system, system.person("Ben"), text);
  await vi.waitFor(async () => expect(await system.recorded()).toContain(`pure ${key}`), {
    timeout: 60_000,
  });
  expect(await change({ instructions: "You are the second version." })).toContain("It is applied.");
  await vi.waitFor(async () => expect(await promptOf("and newer?")).toContain("second version"), {
    timeout: 60_000,
  });
  const [killed] = system.workers;
  system.workers.splice(0, 1, await system.start("agent-worker"));
  expect(await promptOf("still newer?")).toContain("second version");
  await killed?.kill();
  await system.release(key);
  expect(await answerTo(system, written)).toContain("ok:");
  const told = prompts("wait for it");
  expect(told.length).toBeGreaterThan(1);
  for (const prompt of told) expect(prompt).toContain("first version");
  expect(await promptOf("what now?")).toContain("second version");

  await vi.waitFor(
    async () => {
      const runs = (
        await (await fetch(`${operators.url}/runs?q=${written.messageId}`)).text()
      ).replaceAll(/\s+/g, " ");
      expect(runs).toMatch(/default, Version \d/);
    },
    { timeout: 60_000 },
  );

  expect(await change({ version: "0" }, "back")).toContain("It is applied.");
  await vi.waitFor(
    async () => expect(await promptOf("as in the file?")).toContain("helpful assistant"),
    {
      timeout: 60_000,
    },
  );
  expect(await refusals()).toEqual([]);
});

it("a version above the file's bounds, or on an older base, is not made", async () => {
  const base = async (): Promise<string> => {
    const page = await (await fetch(`${operators.url}/agents/default`)).text();
    return /Version (\d+),/.exec(page.replaceAll(/\s+/g, " "))?.[1] ?? "0";
  };
  const last = await base();
  const above = JSON.stringify({ limits: { maxIterations: 1_000 } });
  expect(await press("apply", { base: last, change: above })).toContain(
    "The file does not allow this version.",
  );
  const old = JSON.stringify({ instructions: "lost" });
  expect(await press("apply", { base: "0", change: old })).toContain(
    "Another operator has changed it meanwhile",
  );
  expect(await base()).toBe(last);
});

it("a server that is added at the console answers for an agent on every worker, without a restart; its key is nowhere in Redis", async () => {
  const key = "sk-key-of-the-added-server";
  const server = await startModelServer({ apiKey: key, script: () => ({ text: "Added, too." }) });
  onTestFinished(async () => await server.close());
  const added = { name: "mine", type: "openai", baseUrl: `${server.url}/v1`, models: "small" };
  expect(await post("/models/set", { ...added, key })).toContain("It is saved");
  expect(await post("/models/test", { model: "mine/small" })).toContain("Added, too.");
  expect(await change({ model: "mine/small" })).toContain("It is applied.");
  const answers = async () => await system.ask(system.person("Ann"), "who answers?");
  await vi.waitFor(async () => expect(await answers()).toContain("Added, too."), {
    timeout: 60_000,
  });
  expect(await post("/models/mine/remove", {})).toContain("Give these other ones first: default");
  expect(await change({ model: "" })).toContain("It is applied.");
  const client = new Redis(users.urlAs(system.redis.port, "console"));
  onTestFinished(() => client.disconnect());
  const stored = await client.hgetall("{larkline}:added-providers");
  expect(Object.keys(stored)).toContain("provider:mine");
  expect(JSON.stringify(stored)).not.toContain(key);
  expect(await post("/models/mine/remove", {})).toContain("It is removed.");
  expect(await refusals()).toEqual([]);
});
