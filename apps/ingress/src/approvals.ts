import { answerToStore } from "@larkline/agent";
import { sessionKeyOf } from "@larkline/agent/messages";
import { isDecider, maskedArguments } from "@larkline/agent/permissions";
import {
  apiApp,
  isChildSession,
  jsonParserOf,
  parserOf,
  type InboundMessage,
  type SessionKey,
} from "@larkline/protocol";
import {
  ApprovalId,
  maxAnswerLength,
  type Approval,
  type ApprovalDecision,
  type DecisionWord,
  type PermissionRule,
} from "@larkline/protocol/approval";
import { withDeadline, type Clock } from "@larkline/protocol/clock";
import {
  ApiAnswer,
  ApiApproval,
  ApiApprovals,
  ApiDecision,
  ApiQuestion,
  ApiQuestions,
  ApiRules,
  type ApiRule,
} from "@larkline/protocol/views/api-approval";
import { ApiError } from "@larkline/protocol/views/run-api";
import { answersKind, type ApprovalStatus, type DecideResult } from "@larkline/store";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { bodyText, isSessionId, isTheirs } from "./api-access.ts";
import { decisionDeadlineMs, type Bot } from "./bot.ts";
import { answerWith, sessionParameter } from "./openapi.ts";
import { type Channel, type Services } from "./services.ts";
import { wakeSession } from "./sessions.ts";

// Decisions of people about calls, wherever they are given, and the routes with which clients of the HTTP API decide.

/** A decision of a person about an approval. */
export interface GivenDecision {
  /** The id as the client gave it: any text. */
  approvalId: string;
  decision: Omit<ApprovalDecision, "atMs">;
}

/** Its result. */
export type DecisionResult =
  /** The store's result; `closed` also when the approval was settled or expired before. */
  | { result: "settled" | "counted" | "repeated" | "closed"; status: ApprovalStatus }
  /** Nothing has changed. */
  | { result: "not_allowed"; status: ApprovalStatus }
  /** This app has no approval of that id, or the decision does not fit its kind. */
  | { result: "unknown" }
  /** The answer does not fit the form that the server asked with. */
  | { result: "unfit"; error: string }
  /** A dependency did not answer in time, and nothing was written. */
  | { result: "failed" }
  /** The store did not answer, so the decision may have been stored. Repeating it does no harm. */
  | { result: "uncertain" };

const parseApprovalId = parserOf(ApprovalId);

/** Takes a decision. Never rejects, and answers within {@link decisionDeadlineMs}. */
export async function decideApproval(
  services: Services,
  channel: Channel,
  say: GivenDecision,
): Promise<DecisionResult> {
  return await whilePending(services, channel, say, async (status, limit) => {
    const { approval } = status;
    const { decision, note = "" } = say.decision;
    const fitted = decision === "answer" ? answerToStore(approval.question, note) : undefined;
    if (fitted?.ok === false) return { result: "unfit", error: fitted.error };
    const said =
      fitted === undefined ? say : { ...say, decision: { ...say.decision, note: fitted.value } };
    return await take(services, channel, { say: said, approval, limit });
  });
}

/**
 * Whether a person may decide this now: `counted` if so, with the approval as it is. Like {@link decideApproval}, but
 * writes nothing.
 */
export async function previewDecision(
  services: Services,
  channel: Channel,
  say: GivenDecision,
): Promise<DecisionResult> {
  return await whilePending(services, channel, say, async (status) => ({
    result: "counted",
    status,
  }));
}

async function whilePending(
  services: Services,
  channel: Channel,
  say: GivenDecision,
  work: (status: ApprovalStatus, limit: SharedDeadline) => Promise<DecisionResult>,
): Promise<DecisionResult> {
  const { approvals, clock } = services;
  if (!parseApprovalId(say.approvalId).ok) return { result: "unknown" };
  const limit = new SharedDeadline(clock, decisionDeadlineMs);
  try {
    const found = await limit.of(approvals.find(channel.app, say.approvalId));
    if (found === undefined || !answersKind(say.decision.decision, found.approval.kind)) {
      return { result: "unknown" };
    }
    const now = await current(services, found, limit);
    if (now.result === "unknown") return now;
    if (now.status.state !== "pending") {
      await wakeForDecision(services, channel, now, limit);
      return { result: "closed", status: now.status };
    }
    const allowed = await mayDecide(services, channel, {
      approval: now.status.approval,
      say,
      limit,
    });
    if (!allowed) return { result: "not_allowed", status: now.status };
    return await work(now.status, limit);
  } catch (error) {
    channel.log.error({ error, approvalId: say.approvalId }, "a decision was not taken");
    return { result: "failed" };
  }
}

/** A person's message that may answer an open question of their session. */
interface WrittenAnswer {
  message: InboundMessage;
  text: string;
  /** The message that it replies to. */
  repliesTo: string | undefined;
  /** It quotes a message. */
  quotes: boolean;
}

/**
 * Takes a message as the answer to the question whose card it replies to, or else to the only open question to the
 * person who wrote it. Undefined where it answers none: then it is a message like others. Rejects when the store does.
 */
export async function answerByMessage(
  services: Services,
  bot: Bot,
  { message, text, repliesTo, quotes }: WrittenAnswer,
): Promise<"answer" | "not_asked" | "duplicate" | "too_long" | "unfit" | undefined> {
  const { approvals, clock } = services;
  const { sender, app, id: messageId } = message;
  const within = async <T>(work: Promise<T>): Promise<T> =>
    await withDeadline(clock, work, bot.storeDeadlineMs);
  const open = await within(approvals.openQuestions(message.session));
  const replied = open.find(({ cards }) => repliesTo !== undefined && cards.includes(repliesTo));
  const own = open.filter(
    ({ approval }) => approval.deciders.requester && approval.requester.id === sender.id,
  );
  const only = own.length === 1 ? own[0] : undefined;
  // A quoted message may be the card of the question: it is in the chat before its id is stored.
  const found = replied ?? (quotes && only?.cards.length !== 0 ? undefined : only);
  if (found === undefined) return undefined;
  const { approval } = found;
  const chosen = choiceIn(approval, text);
  // Choices are choices: other words begin a turn of their own, unless they reply to the question's card.
  if (chosen === undefined && replied === undefined && isChoice(approval)) return undefined;
  const { session } = approval; // of a helper its own
  const limit = new SharedDeadline(clock, decisionDeadlineMs);
  const say: GivenDecision = {
    approvalId: approval.id,
    decision: { decision: "answer", by: sender },
  };
  if (!(await mayDecide(services, bot, { approval, say, limit }))) return "not_asked";
  const fitted = answerToStore(approval.question, chosen ?? text);
  if (!fitted.ok) return "unfit";
  if (fitted.value.length > maxAnswerLength) return "too_long";
  const name = (await bot.namesOf([sender.id])).get(sender.id);
  const by = name === undefined ? { id: sender.id } : { id: sender.id, name };
  const taken = await within(
    approvals.answer(session, approval.id, { app, messageId, by, text: fitted.value }),
  );
  bot.log.info({ session, approvalId: approval.id, result: taken.result }, "answer by message");
  if (taken.result === "unknown") return "duplicate";
  await wakeSession(services, bot, session, "wakeGen" in taken ? taken.wakeGen : undefined);
  return taken.result === "settled" ? "answer" : undefined;
}

function isChoice({ question }: Approval): boolean {
  return (question?.choices ?? []).length > 0;
}

function bare(words: string): string {
  return words
    .normalize("NFKC")
    .toLowerCase()
    .replaceAll(/^[\p{P}\s]+|[\p{P}\s]+$/gu, "");
}

/** The choice that a text names: by its words, whatever their case and the marks around them, or by its number. */
function choiceIn({ question }: Approval, text: string): string | undefined {
  const choices = question?.choices ?? [];
  const said = bare(text);
  const named = choices.filter((choice) => said !== "" && bare(choice) === said);
  if (named.length > 0) return named.length === 1 ? named[0] : undefined;
  return /^\d$/.test(said) ? choices[Number(said) - 1] : undefined;
}

/** The oldest question or approval of a session that its requester has still to decide. Rejects when the store does. */
export async function ownOpenApproval(
  services: Services,
  bot: Bot,
  { session, sender }: InboundMessage,
): Promise<Approval | undefined> {
  const open = await withDeadline(
    services.clock,
    services.approvals.pending(session),
    bot.storeDeadlineMs,
  );
  return open.find(
    ({ approval: { deciders, requester }, decisions }) =>
      deciders.requester &&
      !deciders.fourEyes &&
      requester.id === sender.id &&
      !decisions.some(({ by }) => by.id === sender.id),
  )?.approval;
}

/** The notice to a person whose message was not taken as an answer. */
export const answerRefusals = {
  not_asked: {
    zh: "这个问题是问其他人的，所以你的回复没有被当作回答。",
    en: "This question is for others, so your reply was not taken as its answer.",
  },
  unfit: {
    zh: "这不是所问问题的有效回答。请在卡片中填写，或回复“拒绝”。",
    en: "This does not fit what is asked. Please fill in the card, or write “decline”.",
  },
} as const;

/** What each piece of work has at least, ms: where the process stood still, its answer may be on its way. */
const leastMs = 50;

/** One deadline for several pieces of work: all of them have to end within about `ms` from its creation. */
class SharedDeadline {
  readonly #clock: Clock;
  readonly #endMs: number;

  constructor(clock: Clock, ms: number) {
    this.#clock = clock;
    this.#endMs = clock.monotonic() + ms;
  }

  async of<T>(work: Promise<T>): Promise<T> {
    return await withDeadline(
      this.#clock,
      work,
      Math.max(leastMs, Math.ceil(this.#endMs - this.#clock.monotonic())),
    );
  }
}

/** Whether an approval has expired is decided by the clock of the store. */
async function current(
  { approvals, clock }: Services,
  status: ApprovalStatus,
  limit: SharedDeadline,
): Promise<DecideResult> {
  const { session, id, expiresAtMs } = status.approval;
  const isDue = status.state === "pending" && expiresAtMs <= clock.now();
  return isDue
    ? await limit.of(approvals.settle(session, id, "expired"))
    : { result: "closed", status };
}

/** Used to answer a click at once; workers check a decision again. */
async function mayDecide(
  { settings }: Services,
  channel: Channel,
  { approval, say, limit }: { approval: Approval; say: GivenDecision; limit: SharedDeadline },
): Promise<boolean> {
  const { decision: word, by } = say.decision;
  const groups = async (openId: string): Promise<readonly string[]> =>
    await limit.of(channel.groupsOf(openId));
  return await isDecider(
    approval,
    { id: by.id, word },
    { roles: settings.permissions.roles, groups },
  );
}

async function take(
  services: Services,
  channel: Channel,
  { say, approval, limit }: { say: GivenDecision; approval: Approval; limit: SharedDeadline },
): Promise<DecisionResult> {
  const { session, id } = approval;
  const { decision } = say.decision;
  try {
    const decided = await limit.of(
      services.approvals.decide(session, id, decisionAbout(approval, say.decision)),
    );
    channel.log.info({ session, approvalId: id, decision, result: decided.result }, "decision");
    await wakeForDecision(services, channel, decided, limit);
    return decided.result === "unknown"
      ? decided
      : { result: decided.result, status: decided.status };
  } catch (error) {
    channel.log.error(
      { error, session, approvalId: id },
      "whether a decision was taken is not known",
    );
    return { result: "uncertain" };
  }
}

/** Parts that this person may not add are left out; the decision itself counts. */
function decisionAbout(
  { remember: offered }: Approval,
  given: GivenDecision["decision"],
): GivenDecision["decision"] {
  const { remember, ...decision } = given;
  const counts = remember === true && offered !== undefined && decision.decision === "approve";
  return counts ? { ...decision, remember } : decision;
}

/** The decision is stored already; workers repeat what fails here. */
async function wakeForDecision(
  services: Services,
  channel: Channel,
  decided: DecideResult,
  limit: SharedDeadline,
): Promise<void> {
  if (decided.result !== "settled" && decided.result !== "closed") return;
  const { session, id: approvalId } = decided.status.approval;
  await limit
    .of(wakeSession(services, channel, session, decided.wakeGen))
    .catch((error: unknown) => {
      channel.log.warn({ error, session, approvalId }, "left to the workers");
    });
}

interface DecideRoute {
  Params: { id: string };
}

interface RuleRoute {
  Params: { id?: string };
  Querystring: Record<string, unknown>;
}

interface ListRoute {
  Querystring: Record<string, unknown>;
}

/**
 * Adds approvals and questions of runs over HTTP, where no card asks, and the decisions that are remembered.
 * Needs a scope that only callers of the API reach, with a parser that leaves bodies as bytes.
 */
export function registerApprovalRoutes(scope: FastifyInstance, services: Services): void {
  scope.get<ListRoute>(
    "/v1/approvals",
    {
      config: {
        operation: {
          about: {
            en: "Lists the approvals that a session waits for, oldest first.",
            zh: "列出会话等待的审批，最早的在前。",
          },
          query: { session_id: sessionParameter },
          answers: { 200: ApiApprovals, 400: ApiError, 404: ApiError },
        },
      },
    },
    async (request, reply) => await listPending(services, request, reply, approvalsView),
  );
  scope.post<DecideRoute>(
    "/v1/approvals/:id",
    {
      config: {
        operation: {
          about: {
            en: "Decides an approval. 403: others have to; 409: it was decided before, or has expired.",
            zh: "对审批作出决定。403：须由他人决定；409：已决定或已过期。",
          },
          body: ApiDecision,
          answers: {
            200: answerWith({ approval: ApiApproval }),
            400: ApiError,
            403: answerWith({ approval: ApiApproval }, "error"),
            404: ApiError,
            409: answerWith({ approval: ApiApproval }, "error"),
          },
        },
      },
    },
    async (request, reply) => await postDecision(services, request, reply),
  );
  scope.get<ListRoute>(
    "/v1/inputs",
    {
      config: {
        operation: {
          about: {
            en: "Lists the questions to people that a session waits for, oldest first.",
            zh: "列出会话等待回答的提问，最早的在前。",
          },
          query: { session_id: sessionParameter },
          answers: { 200: ApiQuestions, 400: ApiError, 404: ApiError },
        },
      },
    },
    async (request, reply) => await listPending(services, request, reply, questionsView),
  );
  scope.post<DecideRoute>(
    "/v1/inputs/:id",
    {
      config: {
        operation: {
          about: {
            en: "Answers a question. 403: others were asked; 409: it was answered before, or has expired.",
            zh: "回答一个提问。403：提问对象是他人；409：已有回答或已过期。",
          },
          body: ApiAnswer,
          answers: {
            200: answerWith({ input: ApiQuestion }),
            400: ApiError,
            403: answerWith({ input: ApiQuestion }, "error"),
            404: ApiError,
            409: answerWith({ input: ApiQuestion }, "error"),
          },
        },
      },
    },
    async (request, reply) => await postAnswer(services, request, reply),
  );
  scope.get<RuleRoute>(
    "/v1/permissions",
    {
      config: {
        operation: {
          about: {
            en: "Lists what runs in a session without asking, oldest first.",
            zh: "列出会话中无需询问即可运行的内容。",
          },
          query: { session_id: sessionParameter },
          answers: { 200: ApiRules, 400: ApiError, 404: ApiError },
        },
      },
    },
    async (request, reply) => await listRules(services, request, reply),
  );
  scope.delete<RuleRoute>(
    "/v1/permissions/:id",
    {
      config: {
        operation: {
          about: {
            en: "Takes a remembered permission back, at once.",
            zh: "立即收回一条记住的许可。",
          },
          query: { session_id: sessionParameter },
          answers: { 204: "empty", 400: ApiError, 404: ApiError },
        },
      },
    },
    async (request, reply) => await deleteRule(services, request, reply),
  );
}

function approvalsView(shown: ApprovalStatus[]): ApiApprovals {
  return { approvals: shown.filter((status) => !isQuestion(status)).map(approvalView) };
}

function questionsView(shown: ApprovalStatus[]): ApiQuestions {
  return { inputs: shown.filter(isQuestion).map(questionView) };
}

async function listPending(
  services: Services,
  { query, caller }: FastifyRequest<ListRoute>,
  reply: FastifyReply,
  list: (shown: ApprovalStatus[]) => object,
) {
  const { approvals, clock, log } = services;
  const { session_id: sessionId } = query;
  if (typeof sessionId !== "string" || !isSessionId(sessionId)) return await sessionMissing(reply);
  const session = sessionKeyOf(apiApp, sessionId);
  try {
    const pending = await withDeadline(clock, approvals.pending(session), decisionDeadlineMs);
    const isOwn = await withDeadline(
      clock,
      isTheirs(services, session, caller),
      decisionDeadlineMs,
    );
    const shown = isOwn ? pending : await decidedBy(services, pending, caller);
    if (!isOwn && shown.length === 0) {
      return await reply.code(404).send({ error: "nothing is known of this session" });
    }
    return await reply.send(list(shown));
  } catch (error) {
    log.error({ error, session }, "approvals could not be read");
    return await unavailable(reply, "try again");
  }
}

/** The approvals of another person's session that this caller may decide. */
async function decidedBy(
  services: Services,
  pending: readonly ApprovalStatus[],
  caller: string,
): Promise<ApprovalStatus[]> {
  const may = await Promise.all(
    pending.map(async ({ approval }) => await isApprover(services, approval, caller)),
  );
  return pending.filter((_, at) => may[at] === true);
}

async function isApprover(
  services: Services,
  approval: Approval,
  caller: string,
): Promise<boolean> {
  const { apiChannel, clock } = services;
  const limit = new SharedDeadline(clock, decisionDeadlineMs);
  const say = {
    approvalId: approval.id,
    decision: { decision: wordToAsk[approval.kind], by: { id: caller } },
  };
  return await mayDecide(services, apiChannel, { approval, say, limit });
}

/** A decision that an approver may send. */
const wordToAsk: Readonly<Record<Approval["kind"], DecisionWord>> = {
  call: "approve",
  rule: "approve",
  outcome: "retry",
  question: "answer",
  consent: "reject",
};

async function sessionMissing(reply: FastifyReply) {
  return await reply.code(400).send({ error: "session_id must name a session" });
}

async function unavailable(reply: FastifyReply, error: string) {
  return await reply.code(503).header("retry-after", "1").send({ error });
}

const approvalWordsFor: Readonly<Record<ApiApproval["kind"], ApiDecision["decision"][]>> = {
  call: ["approve", "reject"],
  rule: ["approve", "reject"],
  outcome: ["retry", "done", "abort"],
};

/** What a run waits for, as the HTTP API shows it. */
export function interruptionView(status: ApprovalStatus): ApiApproval | ApiQuestion {
  return isQuestion(status) ? questionView(status) : approvalView(status);
}

function isQuestion({ approval: { kind } }: ApprovalStatus): boolean {
  return kind === "question";
}

function questionView({ approval, state }: ApprovalStatus): ApiQuestion {
  const { text = "", choices = [], format, form } = approval.question ?? {};
  return {
    id: approval.id,
    kind: "question",
    run_id: approval.turnId,
    call_id: approval.callId,
    question: text,
    choices,
    ...(format === undefined ? {} : { format }),
    ...(form === undefined ? {} : { form }),
    created_at: approval.createdAtMs,
    expires_at: approval.expiresAtMs,
    state: state as ApiQuestion["state"], // no decision about a call fits a question
  };
}

function approvalView({ approval, state: known }: ApprovalStatus): ApiApproval {
  const kind = approval.kind as ApiApproval["kind"]; // callers tell questions apart
  const state = known as ApiApproval["state"]; // only questions are answered
  return {
    id: approval.id,
    kind,
    run_id: approval.turnId,
    call_id: approval.callId,
    tool: approval.tool,
    arguments: maskedArguments(approval.arguments, approval.secrets),
    reason: approval.reason,
    risk: approval.risk,
    decisions: approvalWordsFor[kind],
    may_remember: approval.remember !== undefined,
    created_at: approval.createdAtMs,
    expires_at: approval.expiresAtMs,
    state,
  };
}

const parseDecision = jsonParserOf(ApiDecision);
const parseAnswer = jsonParserOf(ApiAnswer);

async function postDecision(
  services: Services,
  request: FastifyRequest<DecideRoute>,
  reply: FastifyReply,
) {
  const text = bodyText(request.body);
  if (text === undefined) {
    return await reply.code(400).send({ error: "the body is not valid UTF-8" });
  }
  const parsed = parseDecision(text);
  if (!parsed.ok) return await reply.code(400).send({ error: parsed.error });
  const { decision, note, remember } = parsed.value;
  const given: Saying = {
    decision,
    ...(note === undefined || note === null || note.trim() === "" ? {} : { note }),
    ...(remember === true ? { remember } : {}),
  };
  return await settleByCaller(services, request, reply, given);
}

async function postAnswer(
  services: Services,
  request: FastifyRequest<DecideRoute>,
  reply: FastifyReply,
) {
  const text = bodyText(request.body);
  if (text === undefined) {
    return await reply.code(400).send({ error: "the body is not valid UTF-8" });
  }
  const parsed = parseAnswer(text);
  if (!parsed.ok) return await reply.code(400).send({ error: parsed.error });
  const { value } = parsed.value;
  const note = typeof value === "string" ? value.trim() : JSON.stringify(value);
  if (note.length > maxAnswerLength) {
    return await reply.code(400).send({ error: "value: is too long" });
  }
  if (note === "") return await reply.code(400).send({ error: "value: must have words" });
  return await settleByCaller(services, request, reply, { decision: "answer", note });
}

type Saying = Omit<GivenDecision["decision"], "by">;

const callerWords = {
  approval: { none: "no pending approval", others: "others have to decide this" },
  question: { none: "no open question", others: "others have been asked this" },
} as const;

function settledView(status: ApprovalStatus) {
  return isQuestion(status) ? { input: questionView(status) } : { approval: approvalView(status) };
}

/** Takes a caller's decision about an approval or answer to a question, and answers with the result. */
async function settleByCaller(
  services: Services,
  { caller, params }: FastifyRequest<DecideRoute>,
  reply: FastifyReply,
  given: Saying,
) {
  const words = callerWords[given.decision === "answer" ? "question" : "approval"];
  const isKnown = await mayKnow(services, params.id, caller).catch((error: unknown) => {
    services.log.error({ error, approvalId: params.id }, "an approval could not be read");
    return undefined;
  });
  if (isKnown === undefined) return await unavailable(reply, "not taken, try again");
  if (!isKnown) return await reply.code(404).send({ error: words.none });
  const said = await decideApproval(services, services.apiChannel, {
    approvalId: params.id,
    decision: { ...given, by: { id: caller } },
  });
  switch (said.result) {
    case "settled":
    case "counted":
    case "repeated":
      return await reply.send(settledView(said.status));
    case "closed":
      return await reply.code(409).send({ error: words.none, ...settledView(said.status) });
    case "not_allowed":
      return await reply.code(403).send({ error: words.others, ...settledView(said.status) });
    case "unfit":
      return await reply.code(400).send({ error: `value: ${said.error}` });
    case "unknown":
      return await reply.code(404).send({ error: words.none });
    case "failed":
      return await unavailable(reply, "not taken, try again");
    case "uncertain":
      return await unavailable(
        reply,
        "it is not certain that this was taken: ask again, which does no harm",
      );
  }
}

/** Whether a caller may know of an approval: one of a session of theirs, or that they may decide. */
async function mayKnow(services: Services, approvalId: string, caller: string): Promise<boolean> {
  const { approvals, clock } = services;
  if (!parseApprovalId(approvalId).ok) return false;
  const found = await withDeadline(clock, approvals.find(apiApp, approvalId), decisionDeadlineMs);
  if (found === undefined) return false;
  const { approval } = found;
  const isOwn = await withDeadline(
    clock,
    isTheirs(services, approval.session, caller),
    decisionDeadlineMs,
  );
  return isOwn || (await isApprover(services, approval, caller));
}

async function listRules(
  services: Services,
  { query, caller }: FastifyRequest<RuleRoute>,
  reply: FastifyReply,
) {
  const { session_id: sessionId } = query;
  if (typeof sessionId !== "string" || !isSessionId(sessionId)) return await sessionMissing(reply);
  try {
    if (!(await isTheirs(services, sessionKeyOf(apiApp, sessionId), caller))) {
      return await reply.code(404).send({ error: "nothing is known of this session" });
    }
    const rules: ApiRules = { rules: (await rulesHeldBy(services, sessionId)).map(ruleView) };
    return await reply.send(rules);
  } catch (error) {
    return await rulesUnreachable(services, reply, { error, sessionId });
  }
}

/** A session of the API is a chat of its own. */
async function rulesHeldBy(
  { clock, rules }: Services,
  sessionId: string,
): Promise<PermissionRule[]> {
  return await withDeadline(
    clock,
    rules.inForce(apiApp, sessionKeyOf(apiApp, sessionId)),
    decisionDeadlineMs,
  );
}

function ruleView({ id, tool, pattern, createdAtMs, expiresAtMs }: PermissionRule): ApiRule {
  return { id, tool, pattern, created_at: createdAtMs, expires_at: expiresAtMs };
}

async function rulesUnreachable(
  { log }: Services,
  reply: FastifyReply,
  facts: { error: unknown; sessionId: string },
) {
  log.error(facts, "rules could not be reached");
  return await unavailable(reply, "try again");
}

async function deleteRule(
  services: Services,
  request: FastifyRequest<RuleRoute>,
  reply: FastifyReply,
) {
  const { session_id: sessionId } = request.query;
  const { id = "" } = request.params;
  const { caller } = request;
  if (typeof sessionId !== "string" || !isSessionId(sessionId)) return await sessionMissing(reply);
  try {
    const { clock, rules } = services;
    const isOwn = await isTheirs(services, sessionKeyOf(apiApp, sessionId), caller);
    const isHeld =
      isOwn &&
      parseApprovalId(id).ok &&
      (await rulesHeldBy(services, sessionId)).some((rule) => rule.id === id);
    if (!isHeld) return await reply.code(404).send({ error: "no such rule" });
    const revoked = await withDeadline(
      clock,
      rules.revoke(apiApp, id, { id: caller }),
      decisionDeadlineMs,
    );
    if (revoked === undefined) return await reply.code(404).send({ error: "no such rule" });
    return await reply.code(204).send();
  } catch (error) {
    return await rulesUnreachable(services, reply, { error, sessionId });
  }
}

/** What a run waits for, with its helpers. */
export async function interruptionsOf(
  { approvals }: Services,
  session: SessionKey,
  runId: string,
): Promise<(ApiApproval | ApiQuestion)[]> {
  const pending = await approvals.pending(session);
  // Helpers below a session work for the one turn that runs in it.
  const isOfRun = ({ approval }: ApprovalStatus): boolean =>
    approval.turnId === runId || (approval.session !== session && isChildSession(approval.session));
  return pending.filter(isOfRun).map(interruptionView);
}
