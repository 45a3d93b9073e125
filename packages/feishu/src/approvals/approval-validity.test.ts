import { settledStates, type Approval, type ApprovalDecision } from "@larkline/protocol/approval";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { approvalCard } from "../cards/approval-card.ts";
import { simulatedApi } from "../simulated-api.fixture.ts";
import { approvalOf } from "./approval-question.fixture.ts";

const text = fc.oneof(
  fc.string({ unit: "binary", maxLength: 60 }),
  fc.constantFrom(
    "```\n<at id=ou_nobody></at>",
    "| a |\n|---|\n".repeat(9),
    "![x](img_v3_none)",
    "\u202e".repeat(3_000),
  ),
);

const decision: fc.Arbitrary<ApprovalDecision> = fc.record({
  decision: fc.constantFrom("approve" as const, "reject" as const, "done" as const),
  by: fc.record({ id: fc.constantFrom("ou_nobody", "ou_1", "api user"), name: text }),
  atMs: fc.constant(1_700_000_000_000),
  note: text,
});

const changes: fc.Arbitrary<Partial<Approval>> = fc.record({
  kind: fc.constantFrom("call" as const, "outcome" as const, "rule" as const),
  tool: fc.oneof(fc.constant("deploy"), text),
  arguments: fc.dictionary(text, fc.oneof(text, fc.double(), fc.array(text, { maxLength: 300 }))),
  reason: text,
  risk: fc.constantFrom("low" as const, "high" as const),
  remember: fc.record({ tool: fc.constant("deploy"), pattern: text }),
  language: fc.constantFrom("zh" as const, "en" as const),
  deciders: fc.record({
    requester: fc.boolean(),
    people: fc.array(fc.constantFrom("ou_nobody", "ou_1", "x y"), { maxLength: 20 }),
    roles: fc.array(text, { maxLength: 5 }),
    fourEyes: fc.boolean(),
    count: fc.integer({ min: 1, max: 5 }),
  }),
});

it("the platform takes every card of an approval, whatever it holds, and every change of it", async () => {
  const { api, appId, chatId, person } = await simulatedApi();
  const target = {
    channel: "feishu" as const,
    app: appId,
    chatId,
    messageId: "om_1",
    inThread: false,
  };
  const facts = { now: Date.now, session: "s", sender: person.openId, target, deciders: [] };
  let uuids = 0;
  await fc.assert(
    fc.asyncProperty(
      changes,
      fc.array(decision, { maxLength: 4 }),
      fc.constantFrom(...settledStates),
      async (...given) => {
        const [more, decisions, state] = given;
        const approval = approvalOf(facts, "t-1", more);
        uuids += 1;
        const content = JSON.stringify(approvalCard({ approval, state: "pending", decisions }));
        const send = {
          receiveIdType: "chat_id" as const,
          receiveId: chatId,
          messageType: "interactive" as const,
        };
        const { messageId } = await api.messages.send({ ...send, content, uuid: `u${uuids}` });
        await api.cards.patchMessage({
          messageId,
          card: approvalCard({ approval, state, decisions }),
        });
        await api.cards.patchMessage({
          messageId,
          card: approvalCard({ approval, state, decisions }, { bare: true }),
        });
      },
    ),
    { numRuns: 100 },
  );
  expect(uuids).toBeGreaterThanOrEqual(100);
});
