import type { ModelScript } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { answersTo, write } from "../system/answers.ts";
import { answerTo, type Writer } from "../system/sending.ts";
import { startSystem, type System, type SystemOptions } from "../system/system.ts";

let system: System;

const patience = { timeout: 60_000, interval: 50 };

/** Looks for documents, and says what it has found. */
const script: ModelScript = ({ messages }) => {
  const [result] = messages.at(-1)?.results ?? [];
  if (result !== undefined) return { text: `found: ${result.content}` };
  return {
    text: "",
    calls: [{ name: "find_documents", arguments: JSON.stringify({ query: "launch" }) }],
  };
};

async function start(options: Pick<SystemOptions, "config" | "workers" | "script">): Promise<void> {
  const env = { GRANT_KEY: "a1".repeat(32) };
  system = await startSystem({ runners: 0, script, env, lines: true, ...options });
  await system.start("tool-runner", {
    RUNNER_NAME: "feishu",
    RUNNER_TOOLS: "@larkline/feishu-tools",
  });
}

/** The page of the platform that the person's newest card leads to. */
async function consentLink({ chatId }: Writer): Promise<string> {
  return await vi.waitFor(() => {
    const cards = system.feishu.messages(chatId).filter(({ senderType }) => senderType === "app");
    const link = /https?:[^"\\]*(?:user_code=|\/authorize\?)[^"\\]*/.exec(
      JSON.stringify(cards.map(({ card }) => card?.json)),
    )?.[0];
    if (link === undefined) throw new Error("no card has a link");
    return link;
  }, patience);
}

function personWithPlan(name: string): Writer {
  const person = system.person(name);
  system.feishu.work.docs.addDocument({
    owner: person.openId,
    title: `Launch of ${name}`,
    markdown: "soon",
  });
  return person;
}

describe("a call that acts as the person who asks", () => {
  beforeAll(async () => await start({ workers: 2 }));
  afterAll(async () => await system.close());

  it("waits for their consent, and sees what they may see, though a worker dies meanwhile", async () => {
    const [ann, bob] = [personWithPlan("Ann"), personWithPlan("Bob")];
    const written = await write(system, ann, "where is the plan of the launch?");
    const link = await consentLink(ann);
    expect(answersTo(system, written).filter(({ text }) => text.includes("found:"))).toEqual([]);
    await system.workers[0]?.kill();
    system.feishu.grants.consent(link, ann.openId);
    const answer = await answerTo(system, written);
    expect(answer).toContain("Launch of Ann");
    expect(answer).not.toContain("Launch of Bob");

    const other = await write(system, bob, "and mine?");
    system.feishu.grants.consent(await consentLink(bob), bob.openId);
    expect(await answerTo(system, other)).toContain("Launch of Bob");
  });
});

describe("in the code flow", () => {
  beforeAll(
    async () =>
      await start({ config: { feishu: { consentUrl: "https://bot.example.com/feishu/consent" } } }),
  );
  afterAll(async () => await system.close());

  /** As the proxy in front of ingress leads a browser there. */
  async function open(address: string): Promise<{ status: number; page: string }> {
    const { pathname, search } = new URL(address);
    const response = await fetch(`${system.ingresses[0]?.url}${pathname}${search}`);
    return { status: response.status, page: await response.text() };
  }

  it("a consent comes back to ingress by its state, and the call continues; any other grants nothing", async () => {
    const ann = personWithPlan("Ann");
    const written = await write(system, ann, "where is the plan of the launch?");
    const link = await consentLink(ann);
    const { redirect = "" } = system.feishu.grants.consent(link, ann.openId);
    const [code, state = ""] = ["code", "state"].map((name) =>
      new URL(redirect).searchParams.get(name),
    );
    const stale = { status: 400, page: expect.stringContaining("This link is not valid any more") };
    for (const other of ["", "x", `${state}x`, (state ?? "").replace(/^.{22}/, "a".repeat(22))]) {
      const query = new URLSearchParams({ code: code ?? "", state: other }).toString();
      expect(await open(`${redirect.split("?")[0]}?${query}`)).toEqual(stale);
    }
    expect(await open(redirect.replace("code=", "other="))).toEqual(stale);
    expect(answersTo(system, written).filter(({ text }) => text.includes("found:"))).toEqual([]);
    const { status, page } = await open(redirect);
    expect(status).toBe(200);
    for (const words of ["谢谢", "Thank you"]) expect(page).toContain(words);
    expect(await answerTo(system, written)).toContain("Launch of Ann");
    expect(await open(redirect)).toEqual(stale);
  });
});

describe("of an agent that answers in private what it reads as a person of a group", () => {
  const words = { found: "found: ", moved: "I answer you in our own chat." };

  /** Looks for documents; where that is refused it answers alone. Repeats what it has got. */
  const obedient: ModelScript = ({ messages }) => {
    const at = messages.findLastIndex(
      ({ role, results }) => role === "user" && results.length === 0,
    );
    const results = messages.slice(at + 1).flatMap((message) => message.results);
    const last = results.at(-1)?.content ?? "";
    if (last.includes("answer_privately")) {
      return { text: "", calls: [{ name: "answer_privately", arguments: "{}" }] };
    }
    if (results.length > 1) return { text: words.moved };
    if (results.length === 1) return { text: words.found + last };
    const call = { name: "find_documents", arguments: JSON.stringify({ query: "launch" }) };
    return { text: "", calls: [call] };
  };

  beforeAll(
    async () =>
      await start({ script: obedient, config: { agents: { default: { groupReads: "private" } } } }),
  );
  afterAll(async () => await system.close());

  it("the person reads it in their own chat, and the group nothing of it, now and later", async () => {
    const { feishu, appId } = system;
    const [ann, bob] = [personWithPlan("Ann"), personWithPlan("Bob")];
    const members = [ann.openId, bob.openId, appId];
    const chatId = feishu.addChat({ type: "group", name: "Both", members }).chatId;
    const written = await write(system, { ...ann, chatId, mention: true }, "where is my plan?");
    expect(await answerTo(system, written)).toContain(words.moved);
    feishu.grants.consent(await consentLink(ann), ann.openId);
    const alone = (): string => JSON.stringify(feishu.messages(ann.chatId));
    await vi.waitFor(() => expect(alone()).toContain("Launch of Ann"), patience);
    expect(alone()).toContain("where is my plan?");

    const other = await write(system, { ...bob, chatId, mention: true }, "and what did Ann find?");
    expect(await answerTo(system, other)).toContain(words.moved);
    const group = JSON.stringify(feishu.messages(chatId));
    expect(group).toContain("answered in their own chat with me");
    expect(group).not.toContain("Launch of");
    const asked = system.model.requests.filter(({ messages }) =>
      JSON.stringify(messages).includes("and what did Ann find?"),
    );
    expect(asked.length).toBeGreaterThan(0);
    expect(JSON.stringify(asked)).not.toContain("Launch of Ann");
    feishu.grants.consent(await consentLink(bob), bob.openId);
    await vi.waitFor(
      () => expect(JSON.stringify(feishu.messages(bob.chatId))).toContain("Launch of Bob"),
      patience,
    );
  });
});
