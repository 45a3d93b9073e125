import { randomBytes } from "node:crypto";
import { approvalCard } from "@larkline/feishu/cards";
import { turnIdOf } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { argumentsHashOf } from "@larkline/protocol/runner";
import { blankTurn, type TurnState } from "@larkline/protocol/turn";
import type { Claim } from "@larkline/store";
import { testApp, type FeishuWorld } from "./feishu.fixture.ts";
import type { TestIngress } from "./ingress.fixture.ts";

// For tests: a turn that waits for a decision, and its card in the chat, as workers leave them.

const { appId } = testApp;

export interface Question {
  session: string;
  approval: Approval;
  /** Message with the card in the chat. */
  messageId: string;
}

const input = { to: "prod" };

/** A call in the turn of the claim that no person has decided about. */
export function approvalFor(
  claim: Claim,
  chatId: string,
  fields: Partial<Approval> = {},
): Approval {
  if (claim.head === undefined) throw new Error("the claim has no message");
  const { message, seq } = claim.head;
  const nowMs = Date.now();
  return {
    v: 1,
    id: randomBytes(16).toString("hex"),
    kind: "call",
    session: claim.session,
    turnId: turnIdOf(claim.session, seq),
    callId: "c1",
    app: message.app,
    chatId,
    requester: message.sender,
    tool: "deploy",
    arguments: input,
    argumentsHash: argumentsHashOf(JSON.stringify(input)),
    secrets: [],
    deciders: { requester: true, people: [], roles: [], fourEyes: false, count: 1 },
    reason: "",
    risk: "medium",
    language: "en",
    target: message.reply,
    createdAtMs: nowMs,
    expiresAtMs: nowMs + 3_600_000,
    ...fields,
  };
}

/** What a worker saves when a model asks for calls that people decide about. */
export async function suspendOn(
  { store }: Pick<TestIngress, "store">,
  claim: Claim & { /** The turn waits for people only: those of others go on. */ waits?: string },
  approvals: Approval[],
): Promise<void> {
  const waits = claim.waits === undefined ? {} : { waits: claim.waits };
  const { session, epoch, head } = claim;
  if (head === undefined) throw new Error("the claim has no message");
  const turnId = turnIdOf(session, head.seq);
  const blank = blankTurn({ turnId, message: head.message, startedAtMs: 1 });
  const turn: TurnState = {
    ...blank,
    steps: 1,
    calls: approvals.map(({ id, callId, tool, arguments: given }) => ({
      id: callId,
      name: tool,
      arguments: given,
      state: "waiting_approval",
      approvalId: id,
    })),
    startedAtMs: Date.now(),
  };
  const write = { session, epoch, history: [], events: [], consumed: 0, turn, open: [], approvals };
  const saved = await store.save({ ...write, ...waits, mode: "suspend" });
  if (saved.state !== "suspended") throw new Error(`not suspended but ${saved.state}`);
}

/** Ann asks for something in the group that people decide about; resolves when its card is there. */
export async function ask(here: FeishuWorld, fields: Partial<Approval> = {}): Promise<Question> {
  const chatId = here.group;
  const session = `${appId}.${chatId}`;
  await here.say("please deploy", { chatId, mention: true });
  const claim = await here.begin(session);
  const approval = approvalFor(claim, chatId, fields);
  await suspendOn(here.ingress, claim, [approval]);
  here.ingress.wakes.length = 0;
  const card = approvalCard({ approval, state: "pending", decisions: [] });
  const { messageId } = await here.api.messages.send({
    receiveIdType: "chat_id",
    receiveId: chatId,
    uuid: approval.id,
    messageType: "interactive",
    content: JSON.stringify(card),
  });
  return { session, approval, messageId };
}

/** What the card in the chat shows: its title, and whether a person could still click. */
export function shownCard(here: FeishuWorld, { messageId }: Pick<Question, "messageId">) {
  const json = here.said(here.group).find((message) => message.messageId === messageId)?.card?.json;
  const text = JSON.stringify(json ?? {});
  const [, title = ""] = /"title":\{"tag":"plain_text","content":"([^"]*)"/.exec(text) ?? [];
  const [, template = ""] = /"template":"(\w+)"/.exec(text) ?? [];
  return { title, template, hasButtons: text.includes('"tag":"button"') };
}
