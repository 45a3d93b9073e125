import type { ModelScript } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { answersTo, write } from "../system/answers.ts";
import { answerTo, type Writer } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

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

beforeAll(async () => {
  const env = { GRANT_KEY: "a1".repeat(32) };
  system = await startSystem({ workers: 2, runners: 0, script, env, lines: true });
  await system.start("tool-runner", {
    RUNNER_NAME: "feishu",
    RUNNER_TOOLS: "@larkline/feishu-tools",
  });
});
afterAll(async () => {
  await system.close();
});

/** The page of the platform that the person's newest card leads to. */
async function consentLink({ chatId }: Writer): Promise<string> {
  return await vi.waitFor(() => {
    const cards = system.feishu.messages(chatId).filter(({ senderType }) => senderType === "app");
    const link = /https?:[^"\\]*user_code=[^"\\]*/.exec(
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
