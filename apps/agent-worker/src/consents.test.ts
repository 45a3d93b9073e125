import { ApprovalCards, FeishuApi, GrantsApi } from "@larkline/feishu";
import type { Approval } from "@larkline/protocol/approval";
import { systemClock } from "@larkline/protocol/clock";
import type { ToolOutcome } from "@larkline/protocol/tool";
import { startFeishuSimulator, type SimMessage } from "@larkline/simulator";
import { ConsentCallbacks, ConsentStore, GrantStore } from "@larkline/store";
import { openElsewhere, openTestStores } from "@larkline/store/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { calling, resultsIn, type Wanted } from "./approval-world.fixture.ts";
import { Consents } from "./consents.ts";
import { PersonTokens } from "./person-tokens.ts";
import { append, inbound, newWorld, runTools, runWakes, session } from "./turn-world.fixture.ts";

/** Of the platform; sessions of these tests name it `cli_app`. */
const app = { appId: "cli_0123456789abcdef", appSecret: "s3cret-of-the-app", tenantKey: "t1" };
const tokenPath = "/open-apis/authen/v2/oauth/token";
const grantKey = "a".repeat(64);
const grantKeys = [grantKey] as const;
const [readTasks, createEvents] = ["task:task:read", "calendar:calendar.event:create"];

/**
 * Ann asks an agent for calls that act as her; `worker()` starts another process that looks after the cards. With
 * `redirectUri` in the code flow.
 */
async function scene(redirectUri?: string) {
  const stores = openTestStores();
  const world = newWorld(stores);
  const clock = { ...systemClock, now: stores.now };
  const simulator = await startFeishuSimulator({
    apps: [app],
    limits: "off",
    retryDelaysMs: [],
    clock,
  });
  onTestFinished(() => simulator.close());
  const [ann, ben] = ["Ann", "Ben"].map((name) => simulator.addUser({ name }).openId);
  if (ann === undefined || ben === undefined) throw new Error("no people");
  const owner = { app: "cli_app", tenant: "t1", openId: ann };
  const api = new GrantsApi({ ...app, domain: simulator.url });
  const keep = { redis: stores.redis, namespace: stores.namespace, grantKeys };
  const [grants, consents] = [new GrantStore(keep), new ConsentStore(keep)];

  const lacking: (readonly string[])[] = [];
  const worker = (): ApprovalCards => {
    const there = openElsewhere(stores);
    const { approvals, redis, namespace } = there;
    const own = { redis, namespace, grantKeys };
    const held = { grants: new GrantStore(own), consents: new ConsentStore(own) };
    const apiOf = (): GrantsApi => api;
    const wake = async (_session: string, gen: number): Promise<void> => void world.wakes.push(gen);
    const log = { info: () => {}, warn: () => {}, error: () => {} };
    const tokens = new PersonTokens({ ...held, apiOf, clock });
    const platform = new FeishuApi({ ...app, domain: simulator.url, tokenCache: there.tokens });
    onTestFinished(() => platform.close());
    const cards = new ApprovalCards({
      apis: new Map([["cli_app", platform]]),
      approvals,
      consents: new Consents({
        ...held,
        lacks: async (_owner, scopes) => await Promise.resolve(void lacking.push(scopes)),
        tokens,
        apiOf,
        redirectOf: () => redirectUri,
        approvals,
        wake,
        clock,
        log,
      }),
      keepRule: async () => {},
      roles: {},
      wake,
      clock,
    });
    onTestFinished(() => cards.close());
    return cards;
  };
  let cards = worker();

  /** What sweepers do, until only the platform's answer is waited for; then a step further. */
  const work = async (): Promise<void> => {
    for (let due = await stores.approvals.dueCards(stores.now(), 10); due.length > 0;) {
      await Promise.all(due.map(async (next) => await cards.work(next.session, next.approvalId)));
      due = await stores.approvals.dueCards(stores.now(), 10);
    }
  };
  const poll = async (afterMs = 5_000): Promise<void> => {
    await stores.advance(afterMs);
    await work();
  };
  const differences = { grantKey, services: { grants, consents } };
  const sent: string[] = [];
  const ask = async (batch: Wanted[], fields: object = {}): Promise<void> => {
    const { backend, requests } = calling(batch);
    const sender = { id: ann, name: "Ann" };
    await append(
      world,
      inbound(`om_${sent.push("")}`, "what is on my list?", { sender, tenant: "t1", ...fields }),
    );
    Object.assign(differences, { backend, requests });
    await runWakes(world, differences);
    await work();
  };
  /** The woken turns run, and their tools. */
  const resume = async (): Promise<void> => {
    await runWakes(world, differences);
    await runTools(world);
    await runWakes(world, differences);
  };
  const cardsOf = (openId: string): SimMessage[] =>
    [...simulator.chats.values()]
      .filter(({ type, members }) => type === "p2p" && members.has(openId))
      .flatMap(({ chatId }) =>
        [...simulator.messages(chatId)].filter(({ senderType }) => senderType === "app"),
      );
  const textOf = (): string => JSON.stringify(cardsOf(ann).map(({ card }) => card?.json));
  const linkNow = (): string =>
    redirectUri === undefined
      ? (simulator.grants.waiting.at(-1)?.link ?? "")
      : (/http:[^"\\]*\/authorize[^"\\]*/.exec(textOf())?.[0] ?? "");
  const pending = async (): Promise<Approval[]> =>
    (await stores.approvals.pending(session)).map(({ approval }) => approval);
  const die = (): void => void (cards = worker());
  return {
    ...stores,
    consents,
    lacking,
    world,
    simulator,
    ann,
    ben,
    owner,
    grants,
    ask,
    resume,
    work,
    poll,
    cardsOf,
    textOf,
    linkNow,
    pending,
    die,
    callbacks: new ConsentCallbacks(keep),
  };
}

type Scene = Awaited<ReturnType<typeof scene>>;

async function attemptsOf({
  world,
  resume,
}: Scene): Promise<[attempts: string[], results: [string, boolean][]]> {
  await resume();
  return [[...world.ran.keys()].toSorted(), await resultsIn(world)];
}

test("a call waits for its person, who is asked alone, and begins by itself when they have granted", async () => {
  const here = await scene();
  const { simulator, ann, ask, poll, cardsOf, textOf, linkNow, world } = here;
  await ask(["tasks"], { chatType: "group" });
  expect(await world.store.summary(session)).toMatchObject({ state: "suspended" });
  expect(cardsOf(ann)).toHaveLength(1);
  expect(textOf()).toContain("see your tasks");
  expect(textOf()).toContain("what is on my list?");
  expect(textOf()).toContain(linkNow());
  await poll();
  expect(await attemptsOf(here)).toEqual([[], []]);
  simulator.grants.consent(linkNow(), ann);
  await poll();
  expect(textOf()).toContain("Permission granted");
  expect(simulator.grants.waiting).toEqual([]);
  expect(await here.approvals.dueCards(Number.MAX_SAFE_INTEGER, 10)).toEqual([]);
  // Before others see what is read as her.
  expect(await attemptsOf(here)).toEqual([[], []]);
  const [reading] = await here.pending();
  expect(reading).toMatchObject({
    kind: "call",
    deciders: { requester: true, people: [], roles: [] },
  });
  const decided = await here.approvals.decide(session, reading?.id ?? "", {
    decision: "approve",
    by: { id: ann },
  });
  if ("wakeGen" in decided && decided.wakeGen !== undefined) world.wakes.push(decided.wakeGen);
  expect(await attemptsOf(here)).toEqual([["c1-0"], [["c1-0", false]]]);
});

test("calls of one person join one question, also those of a later step", async () => {
  const here = await scene();
  const { simulator, ann, ask, poll, cardsOf, textOf, linkNow } = here;
  await ask(["tasks", "book"]);
  expect(simulator.grants.waiting.map(({ scopes }) => scopes.toSorted())).toContainEqual(
    [createEvents, "offline_access", readTasks].toSorted(),
  );
  expect(cardsOf(ann)).toHaveLength(1);
  expect(textOf()).toContain("create events in your calendar");
  simulator.grants.consent(linkNow(), ann);
  await poll();
  const [attempts] = await attemptsOf(here);
  expect(attempts).toEqual(["c1-0", "c1-1"]);
});

test("a person who has granted is not asked again", async () => {
  const here = await scene();
  const { simulator, ann, ask, poll, linkNow, cardsOf } = here;
  await ask(["tasks"]);
  simulator.grants.consent(linkNow(), ann);
  await poll();
  await here.resume();
  await ask(["tasks"]);
  await here.resume();
  expect(cardsOf(ann)).toHaveLength(1);
  expect(await here.pending()).toEqual([]);
});

test("'not now' and a refusal on the page end all calls that wait, and the model reads it", async () => {
  for (const says of ["card", "page"] as const) {
    const here = await scene();
    const { simulator, ann, ask, poll, work, linkNow, textOf } = here;
    await ask(["tasks", "book"]);
    if (says === "page") simulator.grants.refuse(linkNow());
    else {
      const approvalId = /"__approval__":"(\w+)"/.exec(textOf())?.[1] ?? "";
      const decided = await here.approvals.decide(session, approvalId, {
        decision: "reject",
        by: { id: ann },
      });
      if ("wakeGen" in decided && decided.wakeGen !== undefined) {
        here.world.wakes.push(decided.wakeGen);
      }
    }
    await work();
    await poll();
    const [attempts, results] = await attemptsOf(here);
    expect(attempts).toEqual([]);
    expect(results.map(([text]) => text)).toEqual([
      expect.stringContaining("does not want to give the permission now"),
      expect.stringContaining("does not want to give the permission now"),
    ]);
    expect(textOf()).toContain("Not granted");
  }
});

test("a link that has run out is said, costs nothing, and is replaced when its person wants another one", async () => {
  const here = await scene();
  const { simulator, ann, ask, poll, work, linkNow, textOf, approvals } = here;
  await ask(["tasks"]);
  await poll(300_000);
  expect(textOf()).toContain("The link has run out");
  expect(await approvals.dueCards(Number.MAX_SAFE_INTEGER, 10)).toEqual([]);
  const [asked] = await here.pending();
  await approvals.touchCards(session, asked?.id ?? "", true);
  await work();
  expect(textOf()).toContain(linkNow());
  simulator.grants.consent(linkNow(), ann);
  await poll();
  expect(await attemptsOf(here)).toEqual([["c1-0"], [["c1-0", false]]]);
});

test("where the platform's answer to a consent is lost, its person gets a new link at once, but one alone", async () => {
  const here = await scene();
  const { simulator, ann, ask, poll, linkNow, textOf } = here;
  const lose = { match: { path: tokenPath }, times: 1, action: { kind: "lose_response" } } as const;
  await ask(["tasks"]);
  const first = linkNow();
  const agreeInVain = async (): Promise<void> => {
    simulator.faults.add(lose);
    simulator.grants.consent(linkNow(), ann);
    await poll(); // the answer is lost
    await poll(10_000);
  };
  await agreeInVain();
  expect(textOf()).not.toContain("The link has run out");
  expect(linkNow()).not.toBe(first);
  expect(textOf()).toContain(linkNow());
  simulator.grants.consent(linkNow(), ann);
  await poll();
  expect(await attemptsOf(here)).toEqual([["c1-0"], [["c1-0", false]]]);
  await simulator.grants.revoke(app.appId, ann, "user");
  await here.grants.revoke(here.owner, "user");
  await ask(["tasks"]);
  await agreeInVain();
  await agreeInVain();
  expect(textOf()).toContain("The link has run out");
});

test("what another person grants is thrown away and said", async () => {
  const here = await scene();
  const { simulator, ben, ask, poll, linkNow, textOf, grants, owner } = here;
  await ask(["tasks"]);
  simulator.grants.consent(linkNow(), ben);
  await poll();
  expect(textOf()).toContain("Another account has agreed");
  expect(await grants.read(owner)).toBeUndefined();
  expect(simulator.grants.grantedTo(app.appId, ben)).toEqual([]);
  expect(await attemptsOf(here)).toEqual([[], []]);
});

test("any process takes a consent up after another one's death, days later too", async () => {
  const here = await scene();
  const { simulator, ann, ask, poll, linkNow, die, approvals, work } = here;
  await ask(["tasks"]);
  for (let day = 0; day < 3; day += 1) {
    die();
    await poll(86_400_000);
  }
  const [asked] = await here.pending();
  await approvals.touchCards(session, asked?.id ?? "", true);
  die();
  await work();
  simulator.grants.consent(linkNow(), ann);
  die();
  await poll();
  expect(await attemptsOf(here)).toEqual([["c1-0"], [["c1-0", false]]]);
});

test("a call that the platform refuses for its scopes waits once and runs again", async () => {
  const here = await scene();
  const { simulator, ann, ask, poll, linkNow, world, work } = here;
  await ask(["tasks"]);
  simulator.grants.consent(linkNow(), ann);
  await poll();
  const refused = {
    ok: false,
    error: "refused",
    grant: { kind: "scopes" as const, scopes: ["task:task:write"] as string[] },
  } satisfies Partial<ToolOutcome>;
  world.outcomeOf = () => refused;
  await here.resume();
  await work();
  expect((await here.pending()).map(({ consent }) => consent)).toEqual([
    { scopes: ["task:task:write"], refused: true },
  ]);
  simulator.grants.consent(linkNow(), ann);
  await poll();
  await here.resume();
  await work();
  expect(await here.pending()).toEqual([]);
  expect([...world.ran.keys()]).toEqual(["c1-0", "c1-0.2"]);
  expect(await resultsIn(world)).toEqual([[expect.stringContaining("refused"), true]]);
});

test("where a person takes back what they have granted, the next call asks them again", async () => {
  const here = await scene();
  const { simulator, ann, ask, poll, linkNow, cardsOf, grants, owner } = here;
  await ask(["tasks"]);
  simulator.grants.consent(linkNow(), ann);
  await poll();
  await here.resume();
  await grants.revoke(owner, "person");
  await ask(["tasks"]);
  expect((await here.pending()).map(({ kind }) => kind)).toEqual(["consent"]);
  expect(cardsOf(ann)).toHaveLength(2);
  simulator.grants.consent(linkNow(), ann);
  await poll();
  await here.resume();
  expect(await here.pending()).toEqual([]);
  expect(await grants.read(owner)).toMatchObject({ state: "active" });
});

test("scopes that the platform leaves off end their calls alone", async () => {
  const here = await scene();
  const { simulator, ann, ask, poll, linkNow } = here;
  simulator.grants.setUserScopes(app.appId, [readTasks]);
  await ask(["tasks", "book"]);
  simulator.grants.consent(linkNow(), ann);
  await poll();
  const [attempts, results] = await attemptsOf(here);
  expect(attempts).toEqual(["c1-0"]);
  expect(results.map(([text]) => text)).toEqual([
    "c1-0",
    expect.stringContaining(`did not grant ${createEvents}`),
  ]);
  expect(here.lacking).toEqual([[createEvents]]);
});

test("a call that has joined after the link was made is no call that the platform has left off", async () => {
  const here = await scene();
  const { simulator, ann, ask, poll, linkNow, consents, grants, owner, lacking, work } = here;
  await ask(["tasks", "book"]);
  const first = linkNow();
  // As when the link was for a call that has begun since, and another one has joined while the platform answered.
  const booking = (await here.pending()).find(({ consent }) =>
    consent?.scopes.includes(createEvents),
  );
  const member = { session, approvalId: booking?.id ?? "", scopes: [createEvents] };
  await consents.change(owner, { asked: [readTasks], members: [member] });
  const tokens = { accessToken: "u-1", refreshToken: "ur-1" };
  const ends = {
    accessEndsAtMs: here.now() + 7_200_000,
    refreshEndsAtMs: here.now() + 604_800_000,
  };
  const facts = { ...ends, grantedAtMs: here.now(), issuer: "https://open.example", unionId: "" };
  await grants.write(owner, { tokens, ...facts, asked: [readTasks], granted: [readTasks] }, 0);
  await here.approvals.touchCards(session, member.approvalId, false);
  await work();
  expect(lacking).toEqual([]);
  expect(linkNow()).not.toBe(first);
  simulator.grants.consent(linkNow(), ann);
  await poll();
  expect((await attemptsOf(here))[0]).toEqual(["c1-0", "c1-1"]);
});

describe("in the code flow", () => {
  const redirectUri = "https://bot.example.com/feishu/consent";
  /** What the browser brings to ingress. */
  const broughtBy = ({ redirect = "" }: { redirect?: string }) => {
    const { searchParams: query } = new URL(redirect);
    const [code, state = ""] = [query.get("code"), query.get("state") ?? undefined];
    return { state, answer: code === null ? {} : { code } };
  };

  test("a consent comes back once, by its state, and any process continues", async () => {
    const here = await scene(redirectUri);
    const { simulator, ann, ask, poll, linkNow, callbacks, die, textOf, redis, namespace } = here;
    await ask(["tasks", "book"]);
    const { state, answer } = broughtBy(simulator.grants.consent(linkNow(), ann));
    await poll();
    expect(await attemptsOf(here)).toEqual([[], []]);
    expect(await callbacks.take("cli_other", state, answer)).toBeUndefined();
    expect(await callbacks.take("cli_app", `${state.slice(0, -1)}#`, answer)).toBeUndefined();
    const wrong = `${state.slice(0, -1)}${state.endsWith("A") ? "B" : "A"}`;
    expect(await callbacks.take("cli_app", wrong, answer)).toBeUndefined();
    const waiting = (await here.pending()).map(({ id }) => id);
    expect(waiting).toContain((await callbacks.take("cli_app", state, answer))?.approvalId);
    expect(await callbacks.take("cli_app", state, answer)).toBeUndefined();
    die();
    await poll(15_000);
    expect(textOf()).toContain("Permission granted");
    expect((await attemptsOf(here))[0]).toEqual(["c1-0", "c1-1"]);
    expect(await callbacks.take("cli_app", state, answer)).toBeUndefined();
    expect(await redis.keys(`*${namespace}*consent-*`)).toEqual([]);
  });

  test("the code of another person fits no verifier, and nothing is granted", async () => {
    const here = await scene(redirectUri);
    const { simulator, ann, ben, ask, poll, linkNow, callbacks, grants, owner, textOf } = here;
    await ask(["tasks"]);
    const { state } = broughtBy(simulator.grants.consent(linkNow(), ann));
    const other = new GrantsApi({ ...app, domain: simulator.url });
    const verifier = "v".repeat(43);
    const link = other.consentLink({ redirectUri, scopes: [readTasks], state: "s", verifier });
    const { answer } = broughtBy(simulator.grants.consent(link, ben));
    expect(await callbacks.take("cli_app", state, answer)).toBeDefined();
    await poll(15_000);
    expect(textOf()).toContain("The link has run out");
    expect(await grants.read(owner)).toBeUndefined();
    expect(await grants.read({ ...owner, openId: ben })).toBeUndefined();
  });

  test("a refusal on the page ends the calls, and another link leaves the old one without a state", async () => {
    const here = await scene(redirectUri);
    const { simulator, ann, ask, poll, work, linkNow, callbacks, approvals, textOf } = here;
    await ask(["tasks"]);
    const old = broughtBy(simulator.grants.consent(linkNow(), ann));
    await poll(600_000);
    expect(textOf()).toContain("The link has run out");
    const [asked] = await here.pending();
    await approvals.touchCards(session, asked?.id ?? "", true);
    await work();
    expect(await callbacks.take("cli_app", old.state, old.answer)).toBeUndefined();
    const { state, answer } = broughtBy(simulator.grants.refuse(linkNow()));
    expect(answer).toEqual({});
    expect(await callbacks.take("cli_app", state, answer)).toBeDefined();
    await poll(15_000);
    expect(textOf()).toContain("Not granted");
    expect((await attemptsOf(here))[0]).toEqual([]);
  });
});
