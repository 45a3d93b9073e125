import type { DeadLetter } from "@larkline/store";
import { runOf } from "@larkline/store/testing";
import { afterEach, beforeEach, expect, it } from "vitest";
import {
  appId,
  type Client,
  messageOf,
  openWorld,
  passwords,
  session,
  signIn,
  startTestConsole,
  type TestConsole,
  type World,
} from "./console.fixture.ts";

let world: World;
let running: TestConsole;
let operator: Client;

beforeEach(async () => {
  world = openWorld();
  running = await startTestConsole(world);
  operator = await signIn(running, passwords.operator);
});
afterEach(async () => {
  await running.close();
  await world.close();
});

const nowMs = Date.now();

async function textOf(answer: Promise<Response>): Promise<string> {
  const page = await (await answer).text();
  return page.replaceAll(/<[^>]*>/g, " ").replaceAll(/\s+/g, " ");
}

function failedRun(number: number, problem: string) {
  const turn = `${appId}.oc_${number}-1`;
  return runOf({ turn, outcome: "api_bad_request", problem, endedAtMs: nowMs - number * 60_000 });
}

function letterOf(number: number): DeadLetter {
  const turnId = `${session}-${number}`;
  const about = { app: appId, turnId, messageId: `om_${number}`, atMs: nowMs - number };
  const reason = `its runs failed ${number} times`;
  const message = messageOf(`om_${number}`);
  return { v: 1, kind: "message", id: `turn:${turnId}`, session, ...about, reason, message };
}

it("says in words what failed, kinds of errors as one line with their number, which opens their runs", async () => {
  await world.runs.append([
    failedRun(3, "Your credit balance is too low (req_17)"),
    failedRun(2, "Your credit balance is too low (req_42)"),
    failedRun(1, "max_tokens is too large"),
    runOf({ endedAtMs: nowMs }),
  ]);
  const viewer = await signIn(running, passwords.viewer ?? "");
  const page = await (await viewer.get("/errors")).text();
  const words = "The model&#39;s server refuses the request";
  const rows = (page.split("<tbody>")[1] ?? "")
    .split("</tr>")
    .slice(0, -1)
    .map((row) =>
      row
        .replaceAll(/<[^>]*>/g, " ")
        .replaceAll(/\s+/g, " ")
        .trim(),
    );
  expect(rows).toEqual([
    expect.stringMatching(`^${words} max_tokens is too large 1 `),
    expect.stringMatching(new RegExp(`^${words} Your credit balance is too low \\(req_42\\) 2 `)),
  ]);
  const [, ofCredit = ""] = [...page.matchAll(/href="(\/runs\?[^"]*)"/g)].map(([, path]) => path);
  const runs = await (await viewer.get(ofCredit.replaceAll("&amp;", "&"))).text();
  expect(runs.match(/credit balance/g)).toHaveLength(2);
  expect(runs).not.toContain("max_tokens");
  const zh = await fetch(`${running.url}/errors`, {
    headers: { cookie: `${viewer.cookie}; larkline_language=zh` },
  });
  expect(await zh.text()).toContain("模型服务拒绝了请求");
});

it("tries all again that was given up for one reason, each by an order of its own, at most 20 at a time", async () => {
  for (let number = 1; number <= 22; number += 1) await world.letters.add(letterOf(number));
  const page = await (await operator.get("/errors")).text();
  const [, group = ""] = /again\?group=([^"]+)"/.exec(page) ?? [];
  expect(await textOf(operator.get("/errors"))).toMatch(/its runs failed 1 times 22 /);
  expect(await textOf(operator.get(`/errors/again?group=${group}`))).toMatch(
    /Try all again: 22.*Actions that its earlier runs have taken may be taken once more.*At most 20/,
  );
  expect(await textOf(operator.post("/errors/again", { group }))).toContain("Some are tried again");
  const retried = world.ordered.flatMap(({ act }) =>
    act.do === "retry_letter" ? [act.letterId] : [],
  );
  expect(retried.toSorted()).toEqual(
    Array.from({ length: 20 }, (_, at) => letterOf(at + 1).id).toSorted(),
  );
  expect(await textOf(operator.post("/errors/again", { group: "none" }))).toContain(
    "Nothing of the kind is left.",
  );
  const viewer = await signIn(running, passwords.viewer ?? "");
  expect((await viewer.post("/errors/again", { group })).status).toBe(403);
  expect(await textOf(viewer.get("/errors"))).not.toContain("Try all again");
});
