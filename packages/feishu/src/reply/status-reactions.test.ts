import { openTestStores } from "@larkline/store/testing";
import { describe, expect, it, vi } from "vitest";
import { simulatedApi } from "../simulated-api.fixture.ts";
import { StatusReactions } from "./status-reactions.ts";

async function reactionsOfTwoProcesses() {
  const { api, connect, simulator, say, chatId } = await simulatedApi();
  const { lookups } = openTestStores();
  const lines: unknown[] = [];
  const write = (fields: object): void => void lines.push(fields);
  const logger = { debug: write, info: write, warn: write, error: write };
  const here = new StatusReactions({ api, lookups, logger });
  const elsewhere = new StatusReactions({ api: connect(), lookups, logger });
  const messageId = await say("hi");
  const shown = (): string[] =>
    simulator
      .messages(chatId)
      .flatMap(({ reactions }) => reactions)
      .map(({ emojiType }) => emojiType);
  const refuse = (code: number): (() => void) =>
    simulator.faults.add({
      match: { path: /\/reactions/ },
      action: { kind: "respond", status: 400, body: { code, msg: "no" } },
    });
  return { here, elsewhere, simulator, api, chatId, messageId, lookups, shown, refuse, lines };
}

describe("status reactions", () => {
  it("are added, and taken back by any process", async () => {
    const { here, elsewhere, messageId, shown } = await reactionsOfTwoProcesses();
    await here.add(messageId, "queued");
    await here.add(messageId, "typing");
    expect(shown()).toEqual(["OneSecond", "Typing"]);
    await elsewhere.remove(messageId, "queued");
    expect(shown()).toEqual(["Typing"]);
    await elsewhere.remove(messageId, "typing");
    await here.remove(messageId, "typing");
    expect(shown()).toEqual([]);
  });

  it("do not stay when they are taken back while they are on their way", async () => {
    const { here, elsewhere, simulator, messageId, shown } = await reactionsOfTwoProcesses();
    simulator.faults.add({
      match: { path: /\/reactions$/ },
      times: 1,
      action: { kind: "delay", delayMs: 60 },
    });
    const adding = here.add(messageId, "queued");
    await elsewhere.remove(messageId, "queued");
    await adding;
    expect(shown()).toEqual([]);
  });

  it("are not added any more when it is over already", async () => {
    const { here, elsewhere, messageId, shown, simulator } = await reactionsOfTwoProcesses();
    await elsewhere.remove(messageId, "queued");
    await here.add(messageId, "queued");
    expect(shown()).toEqual([]);
    expect(simulator.apiCalls.filter(({ path }) => path.includes("reactions"))).toEqual([]);
  });

  it.each(["before", "after"])(
    "goes with the line that says what a message waits for, when that is sent %s the end of the wait",
    async (order) => {
      const { here, elsewhere, messageId, simulator, chatId, api } =
        await reactionsOfTwoProcesses();
      const said = (): string[] =>
        simulator
          .messages(chatId)
          .filter(({ senderType, recalled }) => senderType === "app" && !recalled)
          .map(({ text }) => text);
      const content = JSON.stringify({ text: "Messages before this one: 1" });
      const facts = { messageType: "text", content, uuid: "line", inThread: false } as const;
      const line = await api.messages.reply({ messageId, ...facts });
      expect(said()).toHaveLength(1);
      const sent = (): void =>
        here.watchLines(undefined)({
          v: 1,
          id: `queued-${messageId}`,
          uuid: "line",
          session: `${api.appId}.${chatId}`,
          target: { app: api.appId, chatId, messageId, inThread: false },
          text: "Messages before this one: 1",
          createdAtMs: 0,
          attempts: 0,
          uncertainSinceMs: 0,
        })({ state: "sent", messageIds: [line.messageId] });
      if (order === "before") sent();
      await elsewhere.remove(messageId, "line");
      if (order === "after") sent();
      await vi.waitFor(() => expect(said()).toEqual([]), { timeout: 60_000 });
    },
  );

  it.each([231001, 231003, 231008, 231018, 99991672])(
    "fail nothing when they are refused: %d",
    async (code) => {
      const { here, messageId, shown, refuse, lines } = await reactionsOfTwoProcesses();
      const heal = refuse(code);
      await here.add(messageId, "typing");
      await here.remove(messageId, "typing");
      heal();
      expect(shown()).toEqual([]);
      expect(lines).toEqual([expect.objectContaining({ code })]);
    },
  );

  it("fail nothing when what was added cannot be noted", async () => {
    const { here, messageId, lookups, lines } = await reactionsOfTwoProcesses();
    lookups.set = () => Promise.reject(new Error("redis"));
    await here.add(messageId, "typing");
    await here.remove(messageId, "typing");
    expect(lines).toHaveLength(2);
  });
});
