import { ApprovalStore } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { Redis } from "ioredis";
import { expect, it, vi } from "vitest";
import { write } from "../system/answers.ts";
import { runApp } from "../system/app-process.ts";
import { observer } from "../system/redis-users.ts";
import { answerTo } from "../system/sending.ts";
import { startConsole, system, users } from "./console-deployment.ts";

const patience = { timeout: 60_000, interval: 100 };

/** A console for people with a password, and what one of them does there. */
async function signedIn(url: string, name: string, password: string) {
  const body = new URLSearchParams({ name, password });
  const { headers } = await fetch(`${url}/sign-in`, { method: "POST", body, redirect: "manual" });
  const [cookie = ""] = (headers.get("set-cookie") ?? "").split(";");
  const get = async (path: string): Promise<string> =>
    await (await fetch(`${url}${path}`, { headers: { cookie } })).text();
  const csrf = /name="csrf" value="([^"]+)"/.exec(await get("/"))?.[1] ?? "";
  const press = async (
    path: string,
    fields: Record<string, string> = {},
  ): Promise<{ status: number; html: string }> => {
    const sent = new URLSearchParams({ csrf, ...fields });
    const answer = await fetch(`${url}${path}`, {
      method: "POST",
      headers: { cookie },
      body: sent,
    });
    return { status: answer.status, html: await answer.text() };
  };
  return { get, press };
}

/** The fields and the address of a form on a page. */
function formIn(html: string, action: RegExp): { path: string; fields: Record<string, string> } {
  const forms = [...html.matchAll(/<form method="post" action="([^"]+)">([\s\S]*?)<\/form>/g)];
  const [, path = "", inside = ""] = forms.find(([, to = ""]) => action.test(to)) ?? [];
  const hidden = [...inside.matchAll(/name="([^"]+)" value="([^"]*)"/g)].map(
    ([, key = "", value = ""]) => [key, value],
  );
  return { path, fields: Object.fromEntries(hidden) as Record<string, string> };
}

/** What the audit log has, a line each. */
async function auditRecords(): Promise<string[]> {
  const env = {
    REDIS_URL: users.urlAs(system.redis.port, "admin"),
    FEISHU_APP_ID: system.appId,
    FEISHU_APP_SECRET: "unused",
  };
  const { code, output } = await runApp(
    { file: "apps/cli/src/main.ts", args: ["audit", "--file", "/dev/null"] },
    env,
  );
  expect(code, output).toBe(0);
  return output.trim().split("\n");
}

it("an operator decides a call that the policy gives to operators, under their name; a viewer and other calls are refused", async () => {
  const passwords = {
    CONSOLE_PASSWORD: "operators decide here",
    CONSOLE_VIEWER_PASSWORD: "viewers only look here",
  };
  const guarded = await startConsole(passwords);
  const grace = await signedIn(guarded.url, "Grace", passwords.CONSOLE_PASSWORD);
  const victor = await signedIn(guarded.url, "Victor", passwords.CONSOLE_VIEWER_PASSWORD);
  const fay = system.person("Fay Miller");
  const asked = await write(system, fay, 'call ask_once {"key":"operators"}');
  const own = await write(system, system.person("Gil"), 'call ask_pure {"key":"theirs"}');
  await vi.waitFor(async () => {
    const list = await grace.get("/approvals");
    for (const text of ["ask_once", "ask_pure", "Fay Miller", "Gil"]) expect(list).toContain(text);
  }, patience);
  const list = await grace.get("/approvals");
  // Of the two the policy gives one to operators; its arguments are content.
  expect(list.match(/Look and decide/g)).toHaveLength(1);
  expect(list).not.toContain('"operators"');
  expect(await victor.get("/approvals")).not.toContain("Look and decide");
  const look = formIn(list, /\/content$/);
  expect((await victor.press(look.path)).status).toBe(403);
  const { html: question } = await grace.press(look.path);
  expect(question).toContain("&quot;operators&quot;");
  const decision = formIn(question, /\/decide$/);
  expect((await victor.press(decision.path, decision.fields)).status).toBe(403);
  expect(await system.recorded()).not.toContain("once operators");

  // What its own person decides is not an operator's, whatever is sent.
  const session = `${system.appId}.${own.chatId}`;
  const redis = connectRedis(users.urlAs(system.redis.port, "console"));
  const [pending] = await new ApprovalStore({ redis }).pending(session);
  await closeRedis(redis);
  const other = `/approvals/${encodeURIComponent(session)}/${pending?.approval.id ?? ""}`;
  const forged = { ...decision.fields, word: "approve" };
  expect((await grace.press(`${other}/content`)).status).toBe(404);
  expect((await grace.press(`${other}/decide`, forged)).html).toMatch(
    /lets no operator decide|It is over/,
  );

  expect(
    (await grace.press(decision.path, { ...decision.fields, word: "approve" })).html,
  ).toContain("is stored");
  expect(await answerTo(system, asked)).toContain("ok:");
  expect(await system.recorded()).toContain("once operators");
  expect(await system.recorded()).not.toContain("pure theirs");
  const records = await auditRecords();
  expect(records.filter((record) => record.includes("console:Grace")).join("\n")).toMatch(
    /content_shown[\s\S]*"ask_once"/,
  );
  const client = new Redis(users.urlAs(system.redis.port, observer));
  const refused = (await client.call("ACL", "LOG", "100")) as unknown[][]; // one list for each refusal
  client.disconnect();
  expect(
    refused.filter((entry) => entry.includes("console") || entry.includes("agent-worker")),
  ).toEqual([]);
  await guarded.stop();
});
