import {
  applyOrder,
  type ApprovalStore,
  type CardLedger,
  type CardReply,
  type OperatorOrders,
  type OrderDeps,
  type OutboxRecord,
  type RunnerDirectory,
  type SessionStore,
  type StaleSession,
} from "@larkline/store";
import {
  sharedNow,
  type CallState,
  type TurnState,
  type ToolOutcome,
  turnIdOf,
  type InboundMessage,
} from "@larkline/protocol";
import type { TurnQueue } from "@larkline/queue";
import { endOrphan, type FeishuApi } from "@larkline/feishu";
import { answerUuid, noticeText } from "@larkline/agent";
import type { Logger } from "@larkline/process/telemetry";
import { builtInRunner, attemptOf } from "./tools.ts";
import { wakeAfter } from "./turn-holds.ts";
import type { WorkCards } from "./approvals.ts";

/** Which workers live. */
export interface Presence {
  alive(ids: readonly string[]): Promise<Set<string>>;
  takeDuty(duty: string, id: string, ttlMs: number): Promise<boolean>;
}

interface SweeperOptions {
  store: SessionStore;
  turns: TurnQueue;
  approvals: Pick<ApprovalStore, "dueExpiries" | "settle">;
  directory: Pick<RunnerDirectory, "runners">;
  presence: Presence;
  /** What runners have handed in without a ring that anybody heard. */
  handoffs: { sweep(living: readonly string[]): Promise<void> };
  /** Tries the outbox of a session; must not throw. */
  deliverOutbox: (session: string) => Promise<void>;
  /** Says whether the beats of all workers that live are there, and when one is missed. */
  renewals: { isSteady(): boolean; onSilence(listener: () => void): void };
  owner: string;
  intervalMs: number;
  /** How long a session may show no sign of life before it is looked at. */
  staleMs: number;
  /** Each looks after cards of one kind; `signal` breaks it off. */
  cardSweeps: readonly ((signal: AbortSignal) => Promise<void>)[];
  onHealed: (what: "wake" | "crash" | "deadline" | "expiry" | "outbox", count: number) => void;
  /** Told of a call that was answered because its time was over. */
  onLate: (turn: TurnState, call: CallState) => void;
  onError: (error: unknown) => void;
}

const sessionsAtOnce = 200;
/** Running sessions looked at in one pass for a dead owner. */
const manyRunning = 2_000;
/** A session that was touched more recently is surely being run. */
const orphanMs = 500;
/** Within so long all workers miss the same dead one. */
const missedTogetherMs = 150;

/**
 * Finds what was left lying: sessions of dead workers, lost wake-ups, calls and approvals past their
 * time, unsent replies, cards that do not show how things are. Every worker may run it; one at a time
 * does. Everything it does can be done twice.
 */
export function startSweeper(options: SweeperOptions): { close(): Promise<void> } {
  let closed = false;
  let timer: NodeJS.Timeout | undefined;
  let pass: Promise<void> = Promise.resolve();
  const closing = new AbortController();
  const cards = options.cardSweeps.map((sweepOnce) => besideOthers(sweepOnce, options.onError, closing.signal));

  const sweep = async (): Promise<void> => {
    try {
      if (await options.presence.takeDuty("sweep", options.owner, options.intervalMs - 50)) {
        for (const card of cards) card.start();
        await sweepAll(options);
      }
    } catch (error) {
      options.onError(error);
    }
    if (!closed) timer = setTimeout(start, options.intervalMs);
  };
  const start = (): void => {
    pass = sweep();
  };
  timer = setTimeout(start, options.intervalMs);
  options.renewals.onSilence(() => {
    if (!closed) void sweepSilent(options);
  });
  return {
    close: async () => {
      closed = true;
      closing.abort();
      clearTimeout(timer);
      await pass;
      await Promise.all(cards.map(async (card) => await card.ended()));
    },
  };
}

/** All workers miss a dead one, and one of them takes its sessions up; if that one fails, the next round does. */
async function sweepSilent(options: SweeperOptions): Promise<void> {
  try {
    const isOurs = await options.presence.takeDuty("orphans", options.owner, missedTogetherMs);
    if (isOurs) await sweepOrphans(options, sharedNow() - orphanMs);
  } catch (error) {
    options.onError(error);
  }
}

/** What fails in one part keeps no other from its work. */
async function sweepAll(options: SweeperOptions): Promise<void> {
  const parts = [sweepHandoffs, sweepSessions, sweepDeadlines, sweepExpiries, sweepOutboxes];
  const ended = await Promise.allSettled(parts.map(async (part) => await part(options)));
  for (const end of ended) if (end.status === "rejected") options.onError(end.reason);
}

async function sweepHandoffs({ handoffs, directory }: SweeperOptions): Promise<void> {
  const living = await directory.runners();
  await handoffs.sweep(living.map(({ runner }) => runner));
}

/** A sweep that talks to Feishu: nothing else waits for it, and it begins anew only when it is over. */
function besideOthers(
  sweep: (signal: AbortSignal) => Promise<void>,
  onError: (error: unknown) => void,
  signal: AbortSignal,
): { start(): void; ended(): Promise<void> } {
  let running: Promise<void> | undefined;
  return {
    start: () => {
      running ??= sweep(signal)
        .catch(onError)
        .finally(() => (running = undefined));
    },
    ended: async () => await running,
  };
}

/** Sessions of dead workers are taken up at once; others are looked at when nothing has moved for longer. */
async function sweepSessions(options: SweeperOptions): Promise<void> {
  const nowMs = sharedNow();
  await sweepOrphans(options, nowMs - orphanMs);
  for (const session of await options.store.stale(nowMs - options.staleMs, sessionsAtOnce)) {
    if (await isBeingRun(options, session)) await options.store.touch(session.session);
    else await healSession(options, session);
  }
}

async function sweepOrphans(options: SweeperOptions, beforeMs: number): Promise<void> {
  if (!options.renewals.isSteady()) return;
  const running = (await options.store.stale(beforeMs, manyRunning)).filter(({ state }) => state === "running");
  const alive = await options.presence.alive([...new Set(running.map(({ owner }) => owner))]);
  for (const session of running) if (!alive.has(session.owner)) await healSession(options, session);
}

/** A claim lives within the job of its generation: without the job nobody runs the session, whoever lives. */
async function isBeingRun({ turns }: SweeperOptions, { state, session, gen }: StaleSession): Promise<boolean> {
  return state === "running" && (await turns.alive(session, gen));
}

async function healSession({ store, turns, onHealed }: SweeperOptions, stale: StaleSession): Promise<void> {
  const gen = await store.heal(stale.session, stale.gen);
  if (gen === undefined) return;
  const added = await turns.ensure(stale.session, gen);
  if (added) onHealed(stale.state === "running" ? "crash" : "wake", 1);
}

async function sweepOutboxes({ store, deliverOutbox, onHealed }: SweeperOptions): Promise<void> {
  const due = await store.dueOutboxes(sharedNow(), sessionsAtOnce);
  await Promise.all(due.map(async (session) => await deliverOutbox(session)));
  if (due.length > 0) onHealed("outbox", due.length);
}

interface DeadlineSweepDeps {
  store: Pick<SessionStore, "deliver" | "dueDeadlines" | "summary" | "wakeDue">;
  directory: Pick<RunnerDirectory, "runners">;
  turns: Pick<TurnQueue, "wake">;
  onHealed: (what: "deadline", count: number) => void;
  /** Told of a call that was answered because its time was over. */
  onLate: (turn: TurnState, call: CallState) => void;
}

const deadlinesAtOnce = 200;

/** What a call is answered with that had no answer before its deadline. */
function lateAnswer(call: CallState | undefined, started: boolean, living: ReadonlySet<string>): ToolOutcome {
  const { effect, runner = builtInRunner } = call ?? {};
  const isGone = runner !== builtInRunner && !living.has(runner);
  const reason = isGone
    ? `tool_not_found: the runner '${runner}' of this tool is not there, and nobody answered the call in time.`
    : "timeout: no answer before the deadline.";
  // The ledger does not hear of the starts of pure calls, but they have no effect anyway.
  if (!started) return { ok: false, error: effect === "pure" ? reason : `${reason} The call was not run.` };
  const error = `${reason} It had been started and may have taken effect.`;
  return effect === "once" ? { ok: false, error, unknown: true } : { ok: false, error };
}

/**
 * Answers calls past their deadline: their runner is gone, or something took too long. A turn hands a call out again
 * that was not started because its runner was away. Wakes turns whose model step was put off until now.
 */
export async function sweepDeadlines(deps: DeadlineSweepDeps): Promise<void> {
  const { store, directory, turns, onHealed, onLate } = deps;
  const due = await store.dueDeadlines(sharedNow(), deadlinesAtOnce);
  if (due.length === 0) return;
  const living = new Set((await directory.runners()).map(({ runner }) => runner));
  await eachOf(due, async ({ session, callId }) => {
    // A step that was put off: nothing has gone wrong here.
    if (callId === "") return await wakeAfter({ turns }, session, await store.wakeDue(session));
    const { turn } = await store.summary(session);
    const call = turn?.calls.find((one) => attemptOf(one) === callId);
    // Whether it was started is for the ledger to say, at the moment in which it is answered. From then on nothing can
    // start the attempt; where its runner is away, the turn makes another one of it.
    const untouched = { unlessStarted: true, unstarted: true };
    const notRun = await store.deliver(session, callId, lateAnswer(call, false, living), untouched);
    const delivered = notRun.accepted ? notRun : await store.deliver(session, callId, lateAnswer(call, true, living));
    if (delivered.accepted && turn !== undefined && call !== undefined) onLate(turn, call);
    await wakeAfter({ turns }, session, delivered);
    onHealed("deadline", 1);
  });
}

const approvalsAtOnce = 200;
/** Approvals whose cards are worked on at a time. */
const cardsAtOnce = 10;

interface ExpirySweepDeps {
  approvals: Pick<ApprovalStore, "dueExpiries" | "settle">;
  turns: Pick<TurnQueue, "wake">;
  onHealed: (what: "expiry", count: number) => void;
}

/** Ends approvals that nobody has decided in time; whoever waits for one hears of it at once. */
export async function sweepExpiries({ approvals, turns, onHealed }: ExpirySweepDeps): Promise<void> {
  await eachOf(await approvals.dueExpiries(sharedNow(), approvalsAtOnce), async ({ session, approvalId }) => {
    const settled = await approvals.settle(session, approvalId, "expired");
    if (settled.result !== "settled" && settled.result !== "closed") return;
    if (settled.wakeGen !== undefined) await turns.wake(session, settled.wakeGen);
    if (settled.result === "settled") onHealed("expiry", 1);
  });
}

interface ApprovalCardSweepDeps {
  approvals: Pick<ApprovalStore, "dueCards">;
  workCards: WorkCards;
  /** Breaks the sweep off; what it did not get to is found again. */
  signal: AbortSignal;
}

/** Works on cards that do not show the state of their approval: unsent ones, stale copies, those of workers that died. */
export async function sweepApprovalCards(deps: ApprovalCardSweepDeps): Promise<void> {
  const { approvals, workCards, signal } = deps;
  const due = await approvals.dueCards(sharedNow(), approvalsAtOnce);
  const work = async (): Promise<void> => {
    for (let next = due.shift(); next !== undefined && !signal.aborted; next = due.shift()) {
      await workCards(next.session, next.approvalId);
    }
  };
  await Promise.all(Array.from({ length: cardsAtOnce }, work));
}

interface CardSweepDeps {
  ledger: CardLedger;
  store: Pick<SessionStore, "summary">;
  /** By app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  /** How long nobody may have written before somebody looks. */
  untouchedMs: number;
  /** Breaks the sweep off; what it did not end is found again. */
  signal: AbortSignal;
  onHealed: (what: "card", count: number) => void;
}

const repliesAtOnce = 50;

/** A card is somebody's as long as its turn is the one being answered, or messages of its session are unsent. */
async function isOrphan(store: CardSweepDeps["store"], { session, replyId }: CardReply): Promise<boolean> {
  const { state, head, setAside, unsent } = await store.summary(session);
  const open = [...(state === "idle" || head === undefined ? [] : [head]), ...setAside.map((turn) => turn.head)];
  const isRunning = open.some(({ seq }) => turnIdOf(session, seq) === replyId);
  return !isRunning && unsent === 0;
}

/**
 * Ends cards whose turn is gone without a trace (a failover lost its last writes): they would claim
 * to be generating for ever. Everything else that is found is left for another while.
 */
export async function sweepCards({ ledger, store, apis, untouchedMs, signal, onHealed }: CardSweepDeps): Promise<void> {
  for (const { session, replyId } of await ledger.untouched(sharedNow() - untouchedMs, repliesAtOnce)) {
    if (signal.aborted) return;
    await ledger.touch(session, replyId);
    const reply = await ledger.load(session, replyId);
    const api = reply === undefined ? undefined : apis.get(reply.app);
    if (reply === undefined || api === undefined || !(await isOrphan(store, reply))) continue;
    await endOrphan(api, reply, signal);
    await ledger.forget(session, replyId);
    onHealed("card", 1);
  }
}

/**
 * Does the same for one after the other. What fails for one keeps no other from its turn; in the end it
 * rejects with the first failure.
 */
async function eachOf<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const failures: unknown[] = [];
  for (const item of items) await work(item).catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

interface OperatorDeskOptions extends Omit<OrderDeps, "replyOf"> {
  orders: Pick<OperatorOrders, "serve">;
  logger: Logger;
}

/** Pause between looks for orders. */
const lookMs = 100;

/** Does what operators order at the console. Every worker looks; each order is taken by one, once. */
export function startOperatorDesk(options: OperatorDeskOptions): { close(): Promise<void> } {
  const { orders, logger } = options;
  const closing = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const serve = async (): Promise<void> => {
    try {
      while (!closing.signal.aborted && (await orders.serve(async (order) => await obey(options, order)))) {
        // The next one.
      }
    } catch (error) {
      logger.warn({ error }, "an order of an operator may not have been done");
    }
    if (!closing.signal.aborted) timer = setTimeout(start, lookMs);
  };
  let serving = Promise.resolve();
  const start = (): void => {
    serving = serve();
  };
  start();
  return {
    close: async () => {
      closing.abort();
      clearTimeout(timer);
      await serving;
    },
  };
}

const replyOf: OrderDeps["replyOf"] = async (...given) => resetReply(...given);

async function obey(options: OperatorDeskOptions, order: Parameters<typeof applyOrder>[1]) {
  const { by, act } = order;
  options.logger.info({ by, order: act.do, ...("session" in act ? { session: act.session } : {}) }, "operator order");
  return await applyOrder({ ...options, replyOf }, order);
}

/**
 * What ends the card, or stands in place of the answer: ids and key are those of the turn's own answer, so
 * that a person gets one of the two. `onCard`: whether the turn has one.
 */
export function resetReply(turnId: string, message: InboundMessage, onCard: boolean): OutboxRecord | undefined {
  const { id, session, reply, language = "en" } = message;
  if (reply.channel === "none") return undefined;
  const text = [noticeText("stopped", language), noticeText("newConversation", language)].join(" ");
  const { channel: _channel, ...target } = reply;
  const nothing = { thinking: "", tools: [], earlierTools: 0, footer: {} };
  return {
    v: 1,
    id: turnId,
    uuid: answerUuid(reply.app, id),
    session,
    target,
    text,
    ...(onCard ? { view: { v: 1, language, state: "stopped", answer: text, ...nothing } } : {}),
    createdAtMs: sharedNow(),
    attempts: 0,
    uncertainSinceMs: 0,
  };
}
