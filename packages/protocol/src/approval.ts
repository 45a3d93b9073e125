import { Type, type Static } from "./type.ts";
import { CallWords } from "./reply-view.ts";
import { SessionKey, Sender, ReplyTarget } from "./session.ts";
import { RiskLevel } from "./tool.ts";
import { LocalText, replyLanguages } from "./local-text.ts";
import { Traceparent } from "./trace.ts";

/** 32 lowercase hex digits, made from turn and call: creating an approval again finds the first one. */
export const ApprovalId = Type.String({ pattern: "^[0-9a-f]{32}$" });

/** What people may decide about a call or a rule, and about a call whose outcome is unknown. */
export const approvalWords = ["approve", "reject", "retry", "done", "abort"] as const;

/** The same, and `answer` to a question, with the answer as note. */
const decisionWords = [...approvalWords, "answer"] as const;

export type DecisionWord = (typeof decisionWords)[number];

/** Longest answer to a question, in characters. */
export const maxAnswerLength = 4_000;

/** One person's decision, as recorded. */
export const ApprovalDecision = Type.Object({
  decision: Type.Enum([...decisionWords]),
  by: Sender,
  /** Epoch ms, of the store's clock. */
  atMs: Type.Integer(),
  /** Why, in the person's own words; of `answer`, the answer. */
  note: Type.Optional(Type.String({ maxLength: maxAnswerLength })),
  /** An operator has said it in the console; `by` has the name that they claim. A worker writes it. */
  via: Type.Optional(Type.Literal("console")),
  /** Approve such calls from now on: the approval's `remember` becomes a rule. */
  remember: Type.Optional(Type.Boolean()),
});

export type ApprovalDecision = Static<typeof ApprovalDecision>;

/**
 * How an approval ended. `undeliverable`: the card reached no approver; `cancelled`: its turn ended.
 */
export const approvalStates = [
  "approved",
  "rejected",
  "retried",
  "done",
  "aborted",
  "expired",
  "cancelled",
  "undeliverable",
] as const;

/** The same, and how a question ended that was answered. */
export const settledStates = [...approvalStates, "answered"] as const;

export const SettledState = Type.Enum([...settledStates]);

export type SettledState = (typeof settledStates)[number];

export type ApprovalState = "pending" | SettledState;

/** The state that a decision leads to once enough people have made it. */
export const stateAfter: Readonly<Record<DecisionWord, SettledState>> = {
  approve: "approved",
  reject: "rejected",
  retry: "retried",
  done: "done",
  abort: "aborted",
  answer: "answered",
};

/** Who may decide: everyone named in one of the first four fields. If all are empty, no one may. */
export const Deciders = Type.Object({
  /** The person whose message led to the call. They may always reject, whatever stands here. */
  requester: Type.Boolean(),
  /** open_ids. */
  people: Type.Array(Type.String({ minLength: 1, maxLength: 128 }), { maxItems: 100 }),
  /** Names of roles of the configuration. */
  roles: Type.Array(Type.String({ minLength: 1, maxLength: 100 }), { maxItems: 20 }),
  /** How people read the names of roles; one without is read as it is. */
  roleTitles: Type.Optional(Type.Record(Type.String(), LocalText)),
  /** Operators of the console, who count as one person: their names are claimed. Of calls alone. Default false. */
  operators: Type.Optional(Type.Boolean()),
  /** The requester's own approval does not count. */
  fourEyes: Type.Boolean(),
  /** How many people have to approve; one rejection is always enough. */
  count: Type.Integer({ minimum: 1, maximum: 10 }),
});
export type Deciders = Static<typeof Deciders>;

/** What a remembered decision allows; see `PermissionRule`. */
export const RuleProposal = Type.Object({
  tool: Type.String(),
  /** Pattern of the tool's subject; `*` stands for any arguments. */
  pattern: Type.String({ maxLength: 1_000 }),
  /** Only calls of this person; absent: of every person in the chat. */
  person: Type.Optional(Type.String()),
});
export type RuleProposal = Static<typeof RuleProposal>;

/** A field of a form that people fill in. Text of a stranger: only shown. */
export const FormField = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 100 }),
  label: Type.String({ minLength: 1, maxLength: 100 }),
  hint: Type.Optional(Type.String({ maxLength: 300 })),
  kind: Type.Enum([
    "text",
    "number",
    "integer",
    "boolean",
    "choice",
    "email",
    "uri",
    "date",
    "date-time",
  ]),
  required: Type.Boolean(),
  /** For a `choice`: the value that counts, and what people read. */
  options: Type.Optional(
    Type.Array(
      Type.Object({
        value: Type.String({ maxLength: 200 }),
        label: Type.String({ maxLength: 100 }),
      }),
      {
        minItems: 1,
        maxItems: 50,
      },
    ),
  ),
  /** Of the number, or of the length of the text. */
  min: Type.Optional(Type.Number()),
  max: Type.Optional(Type.Number()),
});
export type FormField = Static<typeof FormField>;

/** What an MCP server asks, as a form. */
export const AskedForm = Type.Object({
  server: Type.String({ minLength: 1, maxLength: 200 }),
  message: Type.String({ maxLength: 1_000 }),
  fields: Type.Array(FormField, { maxItems: 10 }),
});
export type AskedForm = Static<typeof AskedForm>;

/** What a call of `ask_person` wants to know, or the server of a call. */
export const AskedQuestion = Type.Object({
  text: Type.String({ minLength: 1, maxLength: 1_000 }),
  /** Offered as buttons; any other words are an answer as well. */
  choices: Type.Array(Type.String({ minLength: 1, maxLength: 60 }), { maxItems: 6 }),
  /** The answer has to be one: cards have a picker. */
  format: Type.Optional(Type.Enum(["date", "date-time"])),
  /** For a server: the answer has to fit. */
  form: Type.Optional(AskedForm),
});
export type AskedQuestion = Static<typeof AskedQuestion>;

/** What a person has to grant before a call may act as them. */
export const AskedConsent = Type.Object({
  scopes: Type.Array(Type.String({ minLength: 1, maxLength: 200 }), { maxItems: 49 }),
  /** The platform has refused the call, whatever the grant says: what was granted before is no answer. */
  refused: Type.Optional(Type.Literal(true)),
});
export type AskedConsent = Static<typeof AskedConsent>;

/** What people are asked and a session waits for, or (`rule`) what stands for itself. Never changes once stored. */
export const Approval = Type.Object({
  v: Type.Literal(1),
  id: ApprovalId,
  /**
   * `call`: may it run? `outcome`: it may have taken effect, what now? `rule`: may such calls always run? `question`: the
   * call is the question, and what people answer is its result. `consent`: may the app do as its requester what the call
   * needs? The platform asks that, and a worker writes down the answer.
   */
  kind: Type.Enum(["call", "outcome", "rule", "question", "consent"]),
  session: SessionKey,
  turnId: Type.String(),
  callId: Type.String(),
  app: Type.String(),
  tenant: Type.Optional(Type.String()),
  chatId: Type.String(),
  requester: Sender,
  tool: Type.String(),
  words: Type.Optional(CallWords),
  arguments: Type.Record(Type.String(), Type.Unknown()),
  /** `argumentsHashOf` the stored arguments: what was approved is what runs. */
  argumentsHash: Type.String(),
  /** Names of arguments whose values are not shown. */
  secrets: Type.Array(Type.String()),
  deciders: Deciders,
  /** Why a person is asked, in their language; may be empty. */
  reason: Type.String({ maxLength: 2_000 }),
  risk: RiskLevel,
  /** Of a `question`. */
  question: Type.Optional(AskedQuestion),
  /** Of a `consent`. */
  consent: Type.Optional(AskedConsent),
  /** Offered as "always allow"; absent where policy does not permit it. */
  remember: Type.Optional(RuleProposal),
  language: Type.Enum([...replyLanguages]),
  /** People of several languages may see the cards: they carry both. Default: `language` alone. */
  bilingual: Type.Optional(Type.Boolean()),
  /** `reason` in both languages, where it is ours and the cards carry both. */
  reasons: Type.Optional(
    Type.Record(Type.Enum([...replyLanguages]), Type.String({ maxLength: 2_000 })),
  ),
  /** The buttons are to stand on the card of the reply; they get a card of their own where that does not succeed. */
  inReply: Type.Optional(Type.Boolean()),
  /** Where the card goes. `none`: no card is sent; the decision comes over HTTP. */
  target: ReplyTarget,
  /** Of the message whose turn asks. */
  traceparent: Type.Optional(Traceparent),
  createdAtMs: Type.Integer(),
  expiresAtMs: Type.Integer(),
});
export type Approval = Static<typeof Approval>;

/** Whether a call waits for the word of its requester and of no other person. */
export function asksRequesterAlone({
  kind,
  deciders,
}: Pick<Approval, "kind" | "deciders">): boolean {
  const { requester, people, roles, operators = false, fourEyes, count } = deciders;
  return (
    kind === "call" &&
    requester &&
    people.length + roles.length === 0 &&
    !operators &&
    !fourEyes &&
    count === 1
  );
}

/** Whether operators of the console may decide it. */
export function operatorsDecide({ kind, deciders }: Pick<Approval, "kind" | "deciders">): boolean {
  return kind === "call" && deciders.operators === true;
}

/** A decision that holds from now on: calls of `tool` whose subject fits `pattern` need no approval in this chat. */
export const PermissionRule = Type.Object({
  v: Type.Literal(1),
  /** Id of the approval that it comes from. */
  id: ApprovalId,
  app: Type.String(),
  chatId: Type.String(),
  tool: Type.String(),
  pattern: Type.String(),
  person: Type.Optional(Type.String()),
  author: Sender,
  createdAtMs: Type.Integer(),
  expiresAtMs: Type.Integer(),
  revoked: Type.Optional(Type.Object({ by: Sender, atMs: Type.Integer() })),
});
export type PermissionRule = Static<typeof PermissionRule>;
