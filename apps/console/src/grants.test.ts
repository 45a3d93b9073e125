import type { GrantOwner } from "@larkline/store";
import { afterAll, beforeAll, expect, it } from "vitest";
import {
  appId,
  openWorld,
  questionOf,
  session,
  startTestConsole,
  type TestConsole,
  type World,
} from "./console.fixture.ts";

const [hourMs, dayMs] = [3_600_000, 86_400_000];
const scopes = ["task:task:read", "made:up:scope"];

let world: World;
let tested: TestConsole;

beforeAll(async () => {
  world = openWorld();
  tested = await startTestConsole(world, null);
});
afterAll(async () => {
  await tested.close();
  await world.close();
});

/** What a person has granted so long ago, as workers keep it. */
async function granted(openId: string, agoMs = 0): Promise<GrantOwner> {
  const owner = { app: appId, tenant: "t1", openId };
  const atMs = Date.now() - agoMs;
  const tokens = { accessToken: `u-${openId}`, refreshToken: `ur-${openId}` };
  const ends = { accessEndsAtMs: atMs + 2 * hourMs, refreshEndsAtMs: atMs + 7 * dayMs };
  const rest = { asked: scopes, granted: scopes, issuer: "https://open.example", unionId: "" };
  await world.grants.write(owner, { tokens, ...ends, grantedAtMs: atMs, ...rest }, 0);
  return owner;
}

const linesOf = (page: string): string[] =>
  (/<tbody>[^]*<\/tbody>/.exec(page)?.[0] ?? "").split("</tr>").map((row) =>
    row
      .replaceAll(/<[^>]+>/g, " ")
      .replaceAll(/\s+/g, " ")
      .trim(),
  );

it("lists grants with their state, what they allow, their last use and error, and never a token", async () => {
  expect(await (await fetch(`${tested.url}/grants`)).text()).toContain(
    "No person has let a bot act",
  );
  const ann = await granted("ou_ann");
  await world.grants.noteUse(ann, {
    tool: "find",
    title: { zh: "查找文档", en: "Find documents" },
    atMs: Date.now(),
  });
  await world.grants.noteRefreshError(ann, "unknown 20050", Date.now());
  await granted("ou_ben", 8 * dayMs);
  await world.grants.revoke(await granted("ou_cat"), "person");
  const page = await (await fetch(`${tested.url}/grants`)).text();
  expect(page).not.toMatch(/u-ou_|ur-ou_|sealed/);
  expect(linesOf(page)).toEqual([
    expect.stringMatching(/^ou_ben lapsed: the person is asked again .*8 days ago/),
    expect.stringMatching(
      /^ou_ann active see your tasks made:up:scope (?:now|\d+ seconds? ago|in 0 seconds) in 7 days Find documents, .* unknown 20050, .* End this grant$/,
    ),
    expect.stringMatching(/^ou_cat ended, .* \(taken back by the person\) (?!.*End this grant)/),
    "",
  ]);
  const chinese = await fetch(`${tested.url}/grants`, { headers: { "accept-language": "zh-CN" } });
  expect(await chinese.text()).toMatch(/个人授权[^]*查看你的任务[^]*查找文档/);
});

/** The page that answers a form with these fields. */
async function sent(path: string, fields: Record<string, string> = {}): Promise<string> {
  const { headers } = await fetch(`${tested.url}/grants`);
  const cookie = headers.getSetCookie().map((one) => one.split(";", 1)[0]);
  const page = await fetch(`${tested.url}/grants`, { headers: { cookie: cookie.join("; ") } });
  const csrf = /name="csrf" value="([^"]+)"/.exec(await page.text())?.[1] ?? "";
  const body = new URLSearchParams({ csrf, ...fields });
  const form = { method: "POST", headers: { cookie: cookie.join("; ") }, body };
  return await (await fetch(`${tested.url}${path}`, form)).text();
}

it("lists a consent that waits, and shows nowhere what its person wrote", async () => {
  const [consent, call] = ["1".repeat(32), "2".repeat(32)];
  const reason = "what is on my list?";
  const deciders = { requester: true, people: [], roles: [], fourEyes: false, count: 1 };
  const operators = { ...deciders, requester: false, operators: true };
  await world.approvals.add(questionOf(consent, { kind: "consent", reason, deciders: operators }));
  await world.approvals.add(questionOf(call, { kind: "call", reason, deciders: operators }));
  const contentOf = async (id: string) => await sent(`/approvals/${session}/${id}/content`);
  expect(await contentOf(call)).toContain(reason);
  expect(await contentOf(consent)).toContain("There is no such page");
  const listed = await (await fetch(`${tested.url}/approvals`)).text();
  expect(listed).toContain("Permission");
  expect(listed).not.toContain(reason);
});

it("has a worker end a grant that an operator wants to end, and says what came of it", async () => {
  const end = async () => await sent("/grants/end", { app: appId, person: "ou_ann" });
  expect(await end()).toContain("The grant has ended.");
  world.results.push({ result: "not_possible" });
  expect(await end()).toContain("The workers have no GRANT_KEY");
  const act = { do: "end_grant", app: appId, openId: "ou_ann" };
  expect(world.ordered.slice(-2)).toEqual([
    expect.objectContaining({ act }),
    expect.objectContaining({ act }),
  ]);
});
