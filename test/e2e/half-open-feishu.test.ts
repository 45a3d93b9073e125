import { startTcpLine, type Swallowed } from "@larkline/testkit";
import { describe, expect, it } from "vitest";
import { waitForAnswer } from "../system/answer.ts";
import { startProcesses } from "../system/system.ts";

// A long connection that has died without a word. The platform may say how often it wants its own pings.

describe.concurrent("a long connection to Feishu that is swallowed", () => {
  it.each<[number, Swallowed]>([
    [5, "both"],
    [120, "both"],
    [120, "toClient"],
  ])(
    "with pings every %i s: a new one within 30 s, and all written meanwhile is answered once (%s)",
    async (pingIntervalSeconds, what) => {
      const retryDelaysMs = Array.from({ length: 80 }, () => 500);
      const system = await startProcesses({
        ingresses: 0,
        runners: 0,
        simulator: { connection: { pingIntervalSeconds, ackTimeoutMs: 1_000 }, retryDelaysMs },
      });
      const line = await startTcpLine(Number(new URL(system.feishu.url).port));
      try {
        await system.start("ingress", { FEISHU_DOMAIN: `http://127.0.0.1:${line.port}` });
        const person = system.person("Ann");
        expect(await system.ask(person, "before", 20_000)).toBe("[before]");
        line.swallow(what);
        const startedMs = performance.now();
        const texts = ["one", "two", "three"];
        for (const text of texts) {
          const { messageId } = await system.feishu.sendMessage({
            appId: system.appId,
            ...person,
            from: person.openId,
            text,
          });
          const { text: answer } = await waitForAnswer(system.feishu, messageId, {
            timeoutMs: 45_000,
          });
          expect(answer).toBe(`[${text}]`);
          // The first one came over the new connection.
          if (text === "one") expect(performance.now() - startedMs).toBeLessThan(30_000);
        }
        const answers = system.feishu
          .messages(person.chatId)
          .filter(({ senderType }) => senderType === "app");
        expect(answers).toHaveLength(1 + texts.length);
      } finally {
        await system.close();
        line.close();
      }
    },
    240_000,
  );
});
