import type { StreamFrame } from "@larkline/protocol/views/stream-frame";
import type { NormalisedRequest } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { elementOf, visibleAnswers, waitForAnswer } from "../system/answer.ts";
import { runApp } from "../system/app-process.ts";
import { writeConfig } from "../system/config-file.ts";
import { keysFor, startSystem, type System } from "../system/system.ts";

/** For an answer, while processes start and die on a machine that is busy with other tests. */
const patience = { timeoutMs: 60_000 };

let system: System;
let support: System;
let withoutBots: Awaited<ReturnType<typeof writeConfig>>;

beforeAll(async () => {
  withoutBots = await writeConfig({});
  system = await startSystem({
    workers: 0,
    lines: true,
    config: {
      agents: {
        default: { instructions: "You are the assistant." },
        support: {
          instructions: "You are the support desk.",
          model: "openai/gpt-5",
          tools: ["note_pure"],
          card: { model: false, cost: false },
          language: "en",
          commands: { ticket: { description: "Opens a ticket.", prompt: "Open a ticket about:" } },
        },
      },
    },
    bots: { support: { transport: "webhook", agent: "support" } },
  });
  support = system.botNamed("support");
  system.feishu.setWebhookUrl(
    support.appId,
    `${system.ingresses[0]?.url ?? ""}/feishu/support/events`,
  );
  system.feishu.setTransport(support.appId, "webhook");
});

afterAll(async () => {
  await system.close();
  await withoutBots.remove();
});

interface Asked {
  appId: string;
  chatId: string;
  messageId: string;
}

/** A new person writes to a bot in a chat of their own. */
async function write(appId: string, text: string): Promise<Asked> {
  const { openId } = system.feishu.addUser({ name: "Ann" });
  const { chatId } = system.feishu.addChat({ type: "p2p", members: [openId, appId] });
  const { messageId, delivery } = await system.feishu.sendMessage({
    appId,
    chatId,
    from: openId,
    text,
  });
  expect((await delivery).outcome).toBe("acknowledged");
  return { appId, chatId, messageId };
}

async function startWorker() {
  const openai = { OPENAI_API_KEY: "scripted", OPENAI_BASE_URL: `${system.model.url}/v1` };
  return await system.start("agent-worker", openai);
}

function requestFor(text: string): NormalisedRequest {
  const request = system.model.requests.find(({ messages }) =>
    messages.some((message) => message.text.includes(text)),
  );
  return request ?? expect.fail(`no model was asked about ${text}`);
}

it("a message to a bot that no worker knows yet waits for one that does, and holds up no other", async () => {
  const old = await system.start("agent-worker", { LARKLINE_CONFIG: withoutBots.path });
  const early = await write(support.appId, "early");
  const other = await write(system.appId, "meanwhile");
  expect((await waitForAnswer(system.feishu, other.messageId, patience)).text).toBe("[meanwhile]");
  await vi.waitFor(
    async () =>
      expect(await (await fetch(`${old.url}/ready`)).json()).toMatchObject({ status: "ready" }),
    { timeout: 60_000 },
  );
  expect(visibleAnswers(system.feishu, early)).toEqual([]);
  await startWorker();
  expect(await old.stop()).toBe(0);
  expect((await waitForAnswer(system.feishu, early.messageId, patience)).text).toBe("[early]");
});

it("several bots answer side by side as their own agents, also when a worker dies", async () => {
  const doomed = await startWorker();
  const texts = Array.from({ length: 6 }, (_, index) => `number ${index} pause 400`);
  const asked = await Promise.all(
    texts.flatMap((text) => [
      write(system.appId, `assistant ${text}`),
      write(support.appId, `desk ${text}`),
    ]),
  );
  await vi.waitUntil(
    () => system.model.requests.some(({ messages }) => messages.at(-1)?.text.startsWith("desk")),
    {
      timeout: patience.timeoutMs,
    },
  );
  await doomed.kill();
  const answers = await Promise.all(
    asked.map(async (one) => await waitForAnswer(system.feishu, one.messageId, patience)),
  );
  for (const [index, one] of asked.entries()) {
    const isDesk = one.appId === support.appId;
    expect(answers[index]?.text).toContain(isDesk ? "[desk" : "[assistant");
    expect(visibleAnswers(system.feishu, one)).toHaveLength(1);
    const [card] = answers[index]?.messages ?? [];
    const footer = JSON.stringify(card === undefined ? {} : elementOf(card, "footer"));
    expect(footer.includes("Sonnet")).toBe(!isDesk);
  }
  expect(requestFor("assistant number 1")).toMatchObject({
    dialect: "anthropic",
    model: "claude-sonnet-4-6",
    system: expect.stringContaining("You are the assistant."),
  });
  const desk = requestFor("desk number 1");
  expect(desk).toMatchObject({ dialect: "openai-chat", model: "gpt-5" });
  expect(desk.system).toContain("You are the support desk.");
  expect(desk.tools.map(({ name }) => name).toSorted()).toEqual(["note_pure", "read_result"]);
});

it("a process without the secrets of a bot does not start, and names all that are missing", async () => {
  const none = {
    FEISHU_APP_SECRET_SUPPORT: "",
    FEISHU_ENCRYPT_KEY_SUPPORT: "",
    FEISHU_VERIFICATION_TOKEN_SUPPORT: "",
  };
  const env = { ...system.env, ...keysFor("agent-worker", ""), ...none };
  const [ingress, worker] = await Promise.all(
    ["ingress", "agent-worker"].map(
      async (app) =>
        await runApp(
          { file: `apps/${app}/src/main.ts` },
          { ...env, PORT: "0" },
          patience.timeoutMs,
        ),
    ),
  );
  expect(ingress).toMatchObject({
    code: 1,
    output: expect.stringContaining("FEISHU_APP_SECRET_SUPPORT is not set."),
  });
  expect(ingress?.output).toContain(
    "needs FEISHU_ENCRYPT_KEY_SUPPORT, FEISHU_VERIFICATION_TOKEN_SUPPORT or both",
  );
  expect(worker).toMatchObject({ code: 1, output: "FEISHU_APP_SECRET_SUPPORT is not set.\n" });
});

describe("over HTTP", () => {
  it("a request names its agent", async () => {
    const response = await fetch(`${system.ingresses[0]?.url ?? ""}/chat`, {
      method: "POST",
      body: JSON.stringify({ message: "from a program", agent: "support" }),
      signal: AbortSignal.timeout(patience.timeoutMs),
    });
    const frames = (await response.text()).split("\n").filter((line) => line.startsWith("data: "));
    const last = JSON.parse((frames.at(-1) ?? "").slice("data: ".length)) as StreamFrame; // our own server wrote it
    expect(last).toMatchObject({ type: "done", final: "[from a program]" });
    expect(requestFor("from a program").model).toBe("gpt-5");
  });
});
