import {
  jsonParserOf,
  OperatorOrder,
  operatorsDecide,
  OrderResult,
  pause,
  systemClock,
  turnIdOf,
  type Clock,
  type InboundMessage,
  type SessionKey,
} from "@larkline/protocol";
import { type RedisConnection, runScript, script } from "./connection.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";
import type { ApprovalStore } from "./approval-store.ts";
import type { AuditLog } from "./audit-log.ts";
import type { DeadLetter, DeadLetters } from "./dead-letters.ts";
import type { Paused, Pauses } from "./pauses.ts";
import type { PermissionRules } from "./permission-rules.ts";
import type { SessionStore } from "./session-store.ts";
import type { ResetOptions } from "./session-types.ts";

// Orders of operators are one stream, the only thing that the console may write which workers act upon. A worker takes
// an order once: a worker that dies in the middle leaves it uncertain, and the console says so; it is not repeated.

/**
 * What came of handing an order in. `not_taken`: no worker has taken it, and none will. `uncertain`: a worker has taken
 * it and not said what came of it.
 */
export type OrderOutcome = { state: "done"; result: OrderResult } | { state: "not_taken" } | { state: "uncertain" };

/** An order that no worker has taken for so long has been given up by its operator. */
const lateMs = 60_000;
const answerKeptMs = 3_600_000;
const lookMs = 25;
const maxWaiting = 1_000;
const taken = "taken";

const takeOrder = script("take-order");

const parseOrder = jsonParserOf(OperatorOrder);
const parseResult = jsonParserOf(OrderResult);

/** The orders of operators on Redis. */
export class OperatorOrders {
  readonly #redis: RedisConnection;
  readonly #stream: string;
  readonly #answers: string;
  readonly #clock: Clock;

  constructor({ redis, namespace, clock = systemClock }: StoreOptions) {
    const keys = createKeyspace(namespace);
    this.#redis = redis;
    this.#clock = clock;
    this.#stream = keys.orders;
    this.#answers = keys.orderResultOf("");
  }

  /** Adds an order, and waits for its result for at most `patienceMs`. */
  async handIn(order: OperatorOrder, patienceMs: number): Promise<OrderOutcome> {
    const id = await this.#redis.xadd(this.#stream, "MAXLEN", "~", maxWaiting, "*", "o", JSON.stringify(order));
    if (id === null) throw new Error("the order was not stored");
    const untilMs = this.#clock.monotonic() + patienceMs;
    while (this.#clock.monotonic() < untilMs) {
      const answered = await this.#answerTo(id);
      if (answered !== undefined) return answered;
      await pause(this.#clock, lookMs);
    }
    if ((await this.#redis.xdel(this.#stream, id)) === 1) return { state: "not_taken" };
    return (await this.#answerTo(id)) ?? { state: "uncertain" };
  }

  async #answerTo(id: string): Promise<OrderOutcome | undefined> {
    const text = await this.#redis.get(this.#answers + id);
    if (text === null || text === taken) return undefined;
    const parsed = parseResult(text);
    return parsed.ok ? { state: "done", result: parsed.value } : { state: "uncertain" };
  }

  /** Takes the oldest order and does it; false when there is none. Unreadable and late orders are dropped. */
  async serve(apply: (order: OperatorOrder) => Promise<OrderResult>): Promise<boolean> {
    const values = { answers: this.#answers, taken, answerKeptMs, lateMs };
    const taking = await runScript(this.#redis, takeOrder, { orders: this.#stream }, values);
    const reply = taking as [string, string, number] | null; // shape fixed by the script
    if (reply === null) return false;
    const [id, text, isLate] = reply;
    const order = parseOrder(text);
    const result: OrderResult =
      isLate === 1 ? { result: "late" } : order.ok ? await apply(order.value) : { result: "not_possible" };
    await this.#redis.set(this.#answers + id, JSON.stringify(result), "PX", answerKeptMs);
    return true;
  }
}

/** What an order of an operator is done with. */
export interface OrderDeps {
  store: Pick<SessionStore, "append" | "cancel" | "queuedGeneration" | "reset" | "waiting">;
  letters: Pick<DeadLetters, "find" | "resend" | "discard">;
  rules: Pick<PermissionRules, "revoke">;
  approvals: Pick<ApprovalStore, "find" | "decide">;
  pauses: Pick<Pauses, "set">;
  /** Whether there is such an agent or tool: nothing else can be paused. */
  exists: (paused: Paused) => boolean;
  /** Gives an agent another version, within what the file allows. */
  changeAgent: (by: string, act: OrderAct<"change_agent">) => Promise<OrderResult["result"]>;
  audit: Pick<AuditLog, "append">;
  /** Adds the wake-up of a session. */
  wake: (session: SessionKey, gen: number) => Promise<void>;
  /** Reports to all workers that a turn is over, so that its model stops at once. */
  stop: (cancel: { session: SessionKey; turnId: string }) => Promise<void>;
  /** Asks a runner to stop its calls of the turn. */
  stopCalls: (runner: string, cancel: { session: SessionKey; turnId: string }) => Promise<void>;
  replyOf: ResetOptions["replyOf"];
}

/** What one kind of order says. */
export type OrderAct<D extends OperatorOrder["act"]["do"]> = Extract<OperatorOrder["act"], { do: D }>;

/** How many waiting messages are taken out in one go: as many as a session may hold. */
const maxDropped = 1_000;

const done: OrderResult = { result: "done" };
const nothing: OrderResult = { result: "nothing" };

/** Carries out an order. The audit log has it, with the operator's name, before it is carried out. */
export async function applyOrder(deps: OrderDeps, { by, act }: OperatorOrder): Promise<OrderResult> {
  switch (act.do) {
    case "cancel":
      return await cancel(deps, by, act);
    case "reset":
      return await reset(deps, by, act.session);
    case "drop":
      return await drop(deps, by, act.session);
    case "retry_letter":
    case "discard_letter":
      return await settleLetter(deps, by, act);
    case "revoke_rule": {
      const revoked = await deps.rules.revoke(act.app, act.ruleId, { id: by });
      return revoked === undefined ? nothing : done;
    }
    case "decide":
      return await decide(deps, by, act);
    case "pause":
    case "resume":
      return await pauseOrResume(deps, by, act);
    case "change_agent":
      return { result: await deps.changeAgent(by, act) };
    case "note": {
      const { do: _do, ...record } = act;
      await deps.audit.append({ ...record, userId: by });
      return done;
    }
  }
}

async function cancel(deps: OrderDeps, by: string, { session, seq }: OrderAct<"cancel">): Promise<OrderResult> {
  const turnId = turnIdOf(session, seq);
  await deps.audit.append({ kind: "turn_cancelled", session, turnId, userId: by });
  return (await cancelTurn(deps, session, turnId)) ? done : nothing;
}

/** As a person's `/stop` does it, for the turn of any person: stored first, then published to all workers. */
async function cancelTurn({ store, wake, stop }: OrderDeps, session: SessionKey, turnId: string): Promise<boolean> {
  const { accepted, wakeGen } = await store.cancel(session, { turnId, reason: "cancelled" });
  if (wakeGen !== undefined) await wake(session, wakeGen);
  await stop({ session, turnId });
  return accepted;
}

/** Ends the turn whatever its state, and begins a new conversation. The store keeps the record of it. */
async function reset(
  { store, wake, stop, stopCalls, replyOf }: OrderDeps,
  by: string,
  session: SessionKey,
): Promise<OrderResult> {
  const { turnId, wakeGen, runners = [], helpers = [], asker } = await store.reset(session, { by, replyOf });
  if (wakeGen !== undefined) await wake(session, wakeGen);
  if (asker !== undefined) await wake(asker.session, asker.wakeGen);
  // Wakes waiting helpers and makes running ones look; each stops the helpers below it.
  const stopHelper = async (helper: SessionKey): Promise<void> => {
    const gen = await store.queuedGeneration(helper);
    if (gen !== undefined) await wake(helper, gen);
    await stop({ session: helper, turnId: turnIdOf(helper, 1) });
  };
  await Promise.all(helpers.map(stopHelper));
  if (turnId === undefined) return nothing;
  // The worker that runs it is fenced already; this makes its model and its tools stop at once.
  await Promise.all([
    stop({ session, turnId }),
    ...runners.map(async (runner) => await stopCalls(runner, { session, turnId })),
  ]);
  return { ...done, turnId };
}

/** Takes the waiting messages out of the inbox, each as its person would. */
async function drop(deps: OrderDeps, by: string, session: SessionKey): Promise<OrderResult> {
  await deps.audit.append({ kind: "inbox_dropped", session, userId: by });
  const waiting = await deps.store.waiting(session, maxDropped);
  const dropped = await Promise.all(
    waiting.map(async ({ seq }) => await cancelTurn(deps, session, turnIdOf(session, seq))),
  );
  return dropped.includes(true) ? done : nothing;
}

/**
 * Says an operator's word about a call where its policy names operators. All of them are one person, because anyone with
 * the password can claim any name. The store keeps the record of it.
 */
async function decide(
  { approvals, wake }: OrderDeps,
  by: string,
  { app, approvalId, word, argumentsHash }: OrderAct<"decide">,
): Promise<OrderResult> {
  const found = await approvals.find(app, approvalId);
  if (found === undefined) return nothing;
  const { approval } = found;
  if (!operatorsDecide(approval) || approval.argumentsHash !== argumentsHash) return { result: "not_possible" };
  const [id = by, ...name] = by.split(":");
  const operator = name.length === 0 ? { id } : { id, name: name.join(":") };
  const decided = await approvals.decide(approval.session, approvalId, {
    decision: word,
    by: operator,
    via: "console",
  });
  if (decided.result === "unknown") return nothing;
  if ("wakeGen" in decided && decided.wakeGen !== undefined) await wake(approval.session, decided.wakeGen);
  return decided.result === "settled" || decided.result === "counted" ? done : nothing;
}

/** What is paused can work again whether or not it still exists. The store keeps the record of it. */
async function pauseOrResume(
  { pauses, exists }: OrderDeps,
  by: string,
  { do: deed, what, name }: OrderAct<"pause" | "resume">,
): Promise<OrderResult> {
  if (deed === "pause" && !exists({ what, name })) return { result: "not_possible" };
  return { result: await pauses.set({ what, name }, deed === "pause", by) };
}

async function settleLetter(
  deps: OrderDeps,
  by: string,
  { do: deed, session, letterId }: OrderAct<"retry_letter" | "discard_letter">,
): Promise<OrderResult> {
  const letter = await deps.letters.find(session, letterId);
  if (letter === undefined) return nothing;
  const kind = deed === "retry_letter" ? "letter_retried" : "letter_discarded";
  const { turnId, app } = letter;
  await deps.audit.append({
    kind,
    session,
    letterId,
    userId: by,
    ...(turnId === undefined ? {} : { turnId }),
    ...(app === undefined ? {} : { app }),
  });
  if (deed === "discard_letter") return (await deps.letters.discard(session, letterId)) ? done : nothing;
  if (letter.kind === "approval") return { result: "not_possible" };
  if (letter.kind === "message") return await runAgain(deps, letter);
  return (await deps.letters.resend(session, letterId)) ? done : nothing;
}

/** Separates a message's id from the number of its abandoned run. */
const againMark = ".again-";

/**
 * The message as a new one: with an id of its own, and so an answer of its own, made from the run that was
 * given up. Two requests for it are one order.
 */
function messageAgain(message: InboundMessage, turnId: string): InboundMessage {
  const [id = message.id] = message.id.split(againMark, 1);
  const run = turnId.slice(turnId.lastIndexOf("-") + 1);
  return { ...message, id: `${id.slice(0, 180)}${againMark}${run}` };
}

/** Appended first, and only then is the letter gone: whatever fails in between can be asked for again. */
async function runAgain(
  { store, letters, wake }: OrderDeps,
  { session, id, message, turnId = id }: Extract<DeadLetter, { kind: "message" }>,
): Promise<OrderResult> {
  const { result, wakeGen } = await store.append(messageAgain(message, turnId));
  if (result === "full") return { result: "full" };
  if (wakeGen !== undefined) await wake(session, wakeGen);
  await letters.discard(session, id);
  return done;
}
