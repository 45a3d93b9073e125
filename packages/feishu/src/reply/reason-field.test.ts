import { systemClock, type Clock } from "@larkline/protocol/clock";
import { expect, it } from "vitest";
import { failureOf, simulatedApi } from "../simulated-api.fixture.ts";
import { addReasonField } from "./reason-field.ts";

it("the field for a reason waits for a locked card until its process ends, and then tries once more", async () => {
  const { simulator, api, say } = await simulatedApi({ api: { retry: { attempts: 1 } } });
  const locked = { code: 200810, msg: "ErrCode: 11310; ErrMsg: card action is lock;" };
  const path = /\/batch_update$/;
  simulator.faults.add({ match: { path }, action: { kind: "respond", status: 400, body: locked } });
  const footer = { tag: "markdown", element_id: "footer", content: "An answer." };
  const config = { schema: "2.0", body: { elements: [footer] } };
  const { messageId } = await api.cards.sendReply({
    messageId: await say("hello"),
    cardId: await api.cards.create(config),
    chatId: "",
    uuid: "card",
    inThread: false,
  });
  const ending = new AbortController();
  const waits: number[] = [];
  const clock: Clock = {
    ...systemClock,
    after: (ms) => {
      waits.push(ms);
      queueMicrotask(() => ending.abort());
      return () => undefined;
    },
  };
  const field = { messageId, turn: "t-1", signal: ending.signal };
  expect((await failureOf(addReasonField({ api, clock }, field))).kind).toBe("card_locked");
  expect(waits).toEqual([300]);
  expect(simulator.apiCalls.filter((call) => path.test(call.path))).toHaveLength(2);
});
