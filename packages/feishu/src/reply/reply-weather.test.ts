import type { FaultAction } from "@larkline/simulator";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { expectFinished } from "./live-typing.fixture.ts";
import {
  answered,
  deliverUntilSent,
  longAnswer,
  replyWorld,
  viewOf,
} from "./reply-world.fixture.ts";

const runs = { numRuns: Number(process.env["RUNS"] ?? 8) };

function refusal(status: number, code: number, msg = "refused"): FaultAction {
  return { kind: "respond", status, body: { code, msg } };
}

const anywhere: FaultAction[] = [
  { kind: "lose_response" },
  { kind: "drop" },
  { kind: "delay", delayMs: 20 },
  refusal(503, 0),
  refusal(200, 1500),
  refusal(429, 99991400),
  refusal(400, 230020),
  refusal(400, 99991663),
];
const locked = refusal(400, 200810, "ErrCode: 11310; ErrMsg: card action is lock;");
const onCards = [...anywhere, refusal(400, 300120), locked];

/** Failures that pass, as the platform and the way to it have them, by where they happen. */
const places: [path: RegExp, actions: FaultAction[]][] = [
  [/\/content$/, [...onCards, refusal(400, 300309), refusal(400, 200850)]],
  [/\/batch_update$/, onCards],
  [/\/settings$/, onCards],
  [/\/cards\/\d+$/, onCards],
  [/\/cards$/, anywhere],
  [/\/reply$/, [...anywhere, refusal(400, 230049)]],
  [/\/cardkit\/|\/im\//, anywhere],
];
const fault = fc.constantFrom(...places).chain(([path, actions]) =>
  fc.record({
    path: fc.constant(path),
    action: fc.constantFrom(...actions),
    times: fc.integer({ min: 1, max: 3 }),
  }),
);
const faults = fc.array(fault, { minLength: 1, maxLength: 6 });
const answers = fc.array(fc.integer({ min: 1, max: 40_000 }), { minLength: 1, maxLength: 4 });

describe("a reply in bad weather", () => {
  it("is shown once and whole, whatever happens on its way", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(faults, answers), { minLength: 1, maxLength: 3 }),
        fc.constantFrom("success" as const, "conflict" as const, "behind" as const),
        async (phases, duplicateCardUuid) => {
          const world = await replyWorld({ simulator: { duplicateCardUuid } });
          const turn = await world.turn();
          let view = viewOf("");
          let answer = "";
          for (const [bad, lengths] of phases) {
            const reply = world.live(turn, () => view);
            for (const { path, action, times } of bad) {
              world.simulator.faults.add({ match: { path }, times, action });
            }
            for (const length of lengths) {
              answer = longAnswer(length);
              view = viewOf(answer, { thinking: length % 2 === 0 ? "hm" : "" });
              reply.changed();
              await new Promise((resolve) => setTimeout(resolve, length % 300));
            }
            await reply.release();
            await turn.reclaim();
          }
          const lease = await turn.commit(answered(answer));
          await world.sender().deliver(lease);
          world.simulator.faults.clear();
          await deliverUntilSent(world, turn);
          const anew = world.shown().filter((one) => !one.answer.includes("written anew"));
          expect(world.lines.filter((line) => line.text.includes("sending text"))).toEqual([]);
          await expectFinished({ ...world, shown: () => anew }, turn, answer);
          expect(world.cards().length).toBe(world.shown().length);
        },
      ),
      runs,
    );
  });
});
