import type { Ability, AskedPeople, CallFacts, DecisionEntry } from "../../turn/ability.ts";
import { recordOf } from "../approvals/record.ts";
import {
  askPersonName,
  compileJsonSchema,
  type Approval,
  type AskedQuestion,
  type CallState,
  type Deciders,
  type EventOf,
  type ParseResult,
  type ToolAnnouncement,
  type ToolOutcome,
} from "@larkline/protocol";
import { Type } from "@larkline/protocol/type";

/*
 * Questions to people: the model calls `ask_person`, and what a person answers is the result of the call. A question is
 * an approval of a kind of its own: the same write stores it and suspends the turn, the same cards, expiry and sweeps
 * look after it. No runner sees such a call, and nothing but a person who was asked can answer it.
 */

/** Of an agent that is configured with `questions: true`. */
export const questions: Ability = {
  name: "questions",
  config: Type.Boolean({
    description:
      "It may ask people with the tool `ask_person`, and waits for their answer. Default: no.",
  }),
  toolNames: [askPersonName],
  tools: ({ settings, people: { roles } }) =>
    settings["questions"] === true ? [toolFor(roles)] : [],
  onCall: (call, facts) => {
    const wanted = wantedQuestion(call.arguments, facts.env.place.people.roles);
    return wanted.ok
      ? { ask: askedQuestion(call, wanted.value, facts) }
      : { ok: false, error: `The arguments do not fit: ${wanted.error}. Nobody was asked.` };
  },
  onDecision: (_call, decision) => questionOutcome(decision),
  needs: () => "question",
};

/** A question, and who may answer it. */
export interface PersonQuestion {
  readonly question: AskedQuestion;
  readonly deciders: Deciders;
  /** Which of several questions of one attempt it is. Such a question shows its own words, not the arguments of the call. */
  readonly key?: string;
}

/** What people are asked, and the event that says so before the question is sent. */
export function askedQuestion(
  call: CallState,
  { question, deciders, key }: PersonQuestion,
  facts: CallFacts,
): AskedPeople {
  const { nowMs, place } = facts.env;
  const expiresAtMs = nowMs + place.people.answerMs;
  const asked = { deciders, reason: "", risk: "low", expiresAtMs } as const;
  const which = key === undefined ? {} : { key };
  const record: Approval = {
    ...recordOf(call, { kind: "question", question: asked, ...which }, facts),
    ...(key === undefined ? {} : { arguments: {} }),
    question,
  };
  const requested: EventOf<"input_requested"> = {
    type: "input_requested",
    requestId: record.id,
    callId: call.id,
    question: question.text,
    choices: question.choices,
    expiresAtMs,
  };
  return { record, events: [requested] };
}

const tools = new Map<string, ToolAnnouncement>();

/** The same tool for the same roles. */
function toolFor(roles: readonly string[]): ToolAnnouncement {
  const key = roles.join(" ");
  const known = tools.get(key);
  const spec = { name: askPersonName, description, inputSchema: inputFor(roles) };
  const tool: ToolAnnouncement = known ?? {
    spec,
    effect: "idempotent",
    requiresApproval: false,
    risk: "low",
    timeoutMs: 30_000,
  };
  tools.set(key, tool);
  return tool;
}

const description =
  "Asks a person and waits for the answer, for a day at most; the result is {answer, by}. Use it where you cannot go on " +
  "without something that only a person can say, not for what you can find out or may decide yourself. Ask one thing " +
  "at a time, and offer choices where there are a few.";

function inputFor(roles: readonly string[]): Record<string, unknown> {
  const to = {
    type: "string",
    enum: ["requester", ...roles],
    description: "Who is asked: the person you are talking to (default), or everybody of a role.",
  };
  return {
    type: "object",
    properties: {
      question: { type: "string", minLength: 1, maxLength: 1_000 },
      choices: {
        type: "array",
        items: { type: "string", minLength: 1, maxLength: 60 },
        minItems: 2,
        maxItems: 6,
        uniqueItems: true,
        description: "Short answers to choose from, shown as buttons.",
      },
      format: {
        type: "string",
        enum: ["date", "date-time"],
        description:
          "Where the answer is a day or a moment: shown as a picker. Not together with choices.",
      },
      ...(roles.length === 0 ? {} : { to }),
    },
    required: ["question"],
    additionalProperties: false,
  };
}

type Asked = Partial<Pick<AskedQuestion, "choices" | "format">> & { question: string; to?: string };

const checks = new Map<string, (given: unknown) => ParseResult<unknown>>();

/** Reads the arguments of a call of `ask_person`. */
function wantedQuestion(
  given: Readonly<Record<string, unknown>>,
  roles: readonly string[],
): ParseResult<PersonQuestion> {
  const key = roles.join(" ");
  const check = checks.get(key) ?? compileJsonSchema(inputFor(roles));
  checks.set(key, check);
  const checked = check(given);
  if (!checked.ok) return checked;
  const { question, choices = [], format, to = "requester" } = given as Asked; // as the schema says
  const text = question.trim();
  if (text === "" || choices.some((choice) => choice.trim() === "")) {
    return { ok: false, error: "question and choices must have words" };
  }
  if (choices.length > 0 && format !== undefined) {
    return { ok: false, error: "give choices or a format, not both" };
  }
  const isOfRole = to !== "requester";
  return {
    ok: true,
    value: {
      question: { text, choices, ...(format === undefined ? {} : { format }) },
      deciders: {
        requester: !isOfRole,
        people: [],
        roles: isOfRole ? [to] : [],
        fourEyes: false,
        count: 1,
      },
    },
  };
}

/** The answer of a person who does not want to say it. */
export const declinedAnswer = JSON.stringify({ action: "decline" });

/** The result of a question that is settled. */
function questionOutcome(entry: DecisionEntry): ToolOutcome {
  const { state, decisions, unchecked = false } = entry;
  if (unchecked) {
    return { ok: false, error: "It could not be checked whether the person who answered may." };
  }
  const given = decisions.find(({ decision }) => decision === "answer");
  if (state === "answered" && given !== undefined) {
    const { note = "", by } = given;
    const said = note === declinedAnswer ? { declined: true } : { answer: note };
    return { ok: true, result: { ...said, by: by.name ?? by.id } };
  }
  if (state === "expired") return { ok: true, result: "nobody answered" };
  if (state === "undeliverable") {
    return { ok: false, error: "Nobody could be asked: the question reached no person." };
  }
  return { ok: false, error: "The question was withdrawn before anybody answered." };
}
