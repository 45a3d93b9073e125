import { openTestStores } from "@larkline/store/testing";
import { describe, expect, it } from "vitest";
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
  return { here, elsewhere, simulator, messageId, lookups, shown, refuse, lines };
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
