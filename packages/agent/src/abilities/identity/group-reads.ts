import { hash } from "node:crypto";
import { parserOf, type InboundMessage } from "@larkline/protocol";
import { textOf } from "@larkline/protocol/content";
import { denial, type ToolAnnouncement, type ToolOutcome } from "@larkline/protocol/tool";
import { agentOfTurn, type CallState, type TurnState } from "@larkline/protocol/turn";
import { Type } from "@larkline/protocol/type";
import type { Question } from "../../permissions/policy.ts";
import { noticeText, oneLine } from "../../texts/index.ts";
import { addressContextOf } from "../../turn/context.ts";
import { languageOfMessage, userMessageOf } from "../../turn/messages.ts";
import type { Ability, AbilityPlace, AbilityWork, CallFacts } from "../../turn/ability.ts";

// What is read as a person in a group: with `ask` that person is asked before others see it; with `private` nothing is
// read there at all, and the message is answered once more where its person talks to the bot alone. So no history, card,
// memory or export of the group can hold what was read.

/** The message as it is answered in its person's own chat; the worker adds where that is. */
export type PrivateMessage = Omit<InboundMessage, "session" | "reply">;

/** The chats in which people talk to the bot alone. */
export interface PrivateChatsClient {
  /**
   * Lets the bot answer the message there, once for each id, below the line `opening`. `full`: too many messages wait there;
   * undefined: there is no such chat.
   */
  answer(message: PrivateMessage, opening: string): Promise<"begun" | "full" | undefined>;
}

declare module "../../turn/ability.ts" {
  interface AbilityClients {
    privateChats: PrivateChatsClient;
  }
}

/** The person of the turn is answered in their own chat. */
interface PrivateReadsState {
  readonly moved: true;
}

type Setting = "ask" | "private" | "off";

const [name, privateName] = ["groupReads", "privateReads"];
const toolName = "answer_privately";

/** Asks the person whether others may see what is read as them. */
export const groupReads: Ability = {
  name,
  config: Type.Enum(["ask", "private", "off"], {
    description:
      "In a group, a tool that acts as the person who asks: `ask` asks that person before others see what it reads, `private` answers that person in their own chat, `off` does neither. Default: `ask`.",
  }),
  toolNames: [],
  beforeCall: (call, facts) => {
    const isRead = call.effect === "pure" && actsAsPerson(call, facts);
    return isRead && settingOf(facts.env.place) === "ask"
      ? { permission: askedFirst(facts) }
      : undefined;
  },
};

/** Runs nothing as a person in a group: it goes before the ability that asks the person for a permission. */
export const privateReads: Ability<PrivateReadsState> = {
  name: privateName,
  toolNames: [toolName],
  tools: (place, message) => (mayMove(place, message) ? tools : none),
  beforeCall: (call, facts) => {
    const { place } = facts.env;
    // Results of calls that change something hold what was read, too.
    if (settingOf(place) !== "private" || !actsAsPerson(call, facts)) return undefined;
    return { outcome: mayMove(place, facts.turn.message) ? readAlone : notHere };
  },
  run: async (call, work) => {
    const given = parseInput(call.arguments);
    return given.ok
      ? await move(work, given.value.context)
      : { ok: false, error: `The arguments do not fit: ${given.error}` };
  },
  onAnswer: ({ outcome, state }) => ({ state: outcome.ok ? { moved: true } : state }),
  needs: () => "private-answer",
  panels: (_state, { message }) => [
    {
      kind: "list",
      name: privateName,
      title: { zh: "🔒 在单聊中回答", en: "🔒 Answered in private" },
      items: [{ text: noticeText("answeredAlone", languageOfMessage(message)) }],
    },
  ],
};

/** Whether a call may act as the person who asks, in a group. */
function actsAsPerson({ name: tool }: CallState, { turn, env }: CallFacts): boolean {
  const wanted = env.tools.get(tool)?.announcement.identity;
  return turn.message.chatType === "group" && wanted !== undefined && wanted.as !== "bot";
}

function settingOf({ settings }: AbilityPlace): Setting {
  return (settings[name] as Setting | undefined) ?? "ask"; // checked with the configuration
}

/** Whether it is a message of a group that can be answered in its person's own chat: a helper's task is not. */
function mayMove(
  place: AbilityPlace,
  { chatType, reply, task }: Pick<InboundMessage, "chatType" | "reply" | "task">,
): boolean {
  const isOfGroup = chatType === "group" && reply.channel === "feishu" && task === undefined;
  return isOfGroup && settingOf(place) === "private";
}

function askedFirst({ turn: { message }, env }: CallFacts): Question {
  const { place, texts, nowMs } = env;
  return {
    deciders: { requester: true, people: [], roles: [], fourEyes: false, count: 1 },
    reason: noticeText("readInGroup", languageOfMessage(message, texts)),
    risk: "low",
    expiresAtMs: nowMs + place.people.answerMs,
  };
}

const readAlone = denial(
  `in this group nothing is done as the person. The call was not run. Call ${toolName}: there the request is done, and answered to the person alone.`,
);
const notHere = denial(
  "in this group nothing is done as the person. The call was not run. Say that the person can ask for it where they talk to you alone.",
);

const Input = Type.Object(
  {
    context: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 2_000,
        description:
          "What was said or done here that the request cannot be understood without; the person's message comes by itself.",
      }),
    ),
  },
  { additionalProperties: false },
);
const parseInput = parserOf(Input);

const none: readonly ToolAnnouncement[] = [];
const tools: readonly ToolAnnouncement[] = [
  {
    spec: {
      name: toolName,
      description:
        "Does the person's request where they talk to you alone, and answers it there. Use it in this group for everything that a tool does or reads as the person; you do not see the answer here.",
      inputSchema: { ...Input },
    },
    title: { zh: "在单聊中回答", en: "Answer in private" },
    effect: "idempotent",
    requiresApproval: false,
    risk: "low",
    addresses: [],
    timeoutMs: 30_000,
  },
];

/** The person's own words, and no others, are their request; what the model adds is text of others. */
async function move(
  { turn, clients }: AbilityWork,
  context: string | undefined,
): Promise<ToolOutcome> {
  const moved = await clients.privateChats.answer(privateMessage(turn, context), openingOf(turn));
  if (moved === "begun") return { ok: true, result: answered };
  const why =
    moved === "full" ? "too many of their messages wait there" : "they cannot be reached there";
  return { ok: false, error: `The person was not answered in their own chat: ${why}.` };
}

const answered =
  "The person gets the answer in their own chat. Say here, in one short sentence, that you answer them there, and nothing else.";

function privateMessage(turn: TurnState, context: string | undefined): PrivateMessage {
  const { message, turnId } = turn;
  const { v, app, tenant, sender, parts, language, traceparent } = message;
  const agent = agentOfTurn(turn);
  const added = `[From the conversation in the group, by you:]\n${context}`;
  return {
    v,
    id: `private-${hash("sha256", turnId, "base64url").slice(0, 22)}`,
    app,
    ...(tenant === undefined ? {} : { tenant }),
    sender,
    chatType: "p2p",
    parts: context === undefined ? parts : [...parts, { type: "text", text: added }],
    createdAtMs: turn.startedAtMs,
    foreign: true,
    addresses: [...addressContextOf([], message, false).named].slice(0, maxAddresses),
    ...(language === undefined ? {} : { language }),
    ...(traceparent === undefined ? {} : { traceparent }),
    agent,
  };
}

const maxAddresses = 200;
const maxTitleChars = 200;

/** What the person reads above the answer. */
function openingOf({ message }: TurnState): string {
  const asked = oneLine(textOf(userMessageOf({ ...message, chatType: "p2p" })), maxTitleChars);
  return noticeText("answersAlone", languageOfMessage(message), { asked });
}
