import { approvalIdOf } from "@larkline/agent/permissions";
import { turnIdOf, type InboundMessage } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { argumentsHashOf } from "@larkline/protocol/runner";
import { blankTurn, type TurnState } from "@larkline/protocol/turn";
import type { SessionStore } from "@larkline/store";

// For tests: a turn that waits for people.

type FeishuTarget = Extract<Approval["target"], { channel: "feishu" }>;

export interface Question {
  session: string;
  id: string;
  approval: Approval;
  target: FeishuTarget;
}

/** Who asks for what, and where. */
export interface QuestionFacts {
  store: SessionStore;
  now: () => number;
  session: string;
  sender: string;
  target: FeishuTarget;
  deciders: readonly string[];
}

const given = { target: "prod" };

function messageOf({ now, session, sender, target }: QuestionFacts): InboundMessage {
  return {
    v: 1,
    session,
    id: target.messageId,
    app: target.app,
    sender: { id: sender },
    chatType: "group",
    parts: [{ type: "text", text: "do it" }],
    createdAtMs: now(),
    reply: target,
  };
}

export function approvalOf(
  facts: Omit<QuestionFacts, "store">,
  turnId: string,
  more: Partial<Approval> = {},
): Approval {
  const { now, session, sender, target, deciders } = facts;
  const { kind = "call" } = more;
  const argumentsHash = argumentsHashOf(JSON.stringify(given));
  return {
    v: 1,
    id: approvalIdOf({ kind, turnId, attemptId: "c1", argumentsHash }),
    kind,
    session,
    turnId,
    callId: "c1",
    app: target.app,
    chatId: target.chatId,
    requester: { id: sender },
    tool: "deploy",
    arguments: given,
    argumentsHash,
    secrets: [],
    deciders: { requester: true, people: [...deciders], roles: [], fourEyes: false, count: 1 },
    reason: "",
    risk: "medium",
    language: "en",
    target,
    createdAtMs: now(),
    expiresAtMs: now() + 24 * 3_600_000,
    ...more,
  };
}

/** Stores the approval together with the turn that waits for it. */
export async function askQuestion(
  facts: QuestionFacts,
  more: Partial<Approval> = {},
): Promise<Question> {
  const { store, now, session } = facts;
  const message = messageOf(facts);
  const { wakeGen = 0, seq } = await store.append(message);
  const claim = await store.claim(session, wakeGen, "worker");
  if (claim === undefined) throw new Error("nothing to claim");
  const turnId = turnIdOf(session, seq);
  const approval = approvalOf(facts, turnId, more);
  const { id } = approval;
  const turn: TurnState = {
    ...blankTurn({ turnId, message, startedAtMs: now() }),
    steps: 1,
    calls: [
      { id: "c1", name: "deploy", arguments: given, state: "waiting_approval", approvalId: id },
    ],
  };
  const write = {
    session,
    epoch: claim.epoch,
    history: [],
    events: [],
    consumed: 0,
    open: [],
    turn,
  };
  await store.save({ ...write, approvals: [approval], mode: "suspend" });
  return { session, id, approval, target: facts.target };
}
