import { noticeText } from "@larkline/agent";
import { answerUuid } from "@larkline/agent/messages";
import { changedSchedule } from "@larkline/agent/schedules";
import { turnIdOf, type InboundMessage, type SessionKey } from "@larkline/protocol";
import { operatorsDecide } from "@larkline/protocol/approval";
import { deadline } from "@larkline/protocol/clock";
import type { DeadLetter, OutboxRecord, ResetOptions } from "@larkline/store";
import type { CheckedApp, OrderAct, OperatorOrder, OrderResult } from "@larkline/store/operations";
import { removeProvider, setProvider, testModel } from "./added-models.ts";
import { changeAgent } from "./agent-versions.ts";
import type { Services } from "./services.ts";
import { stopCalls } from "./tools.ts";

// Orders of operators at the console are carried out, each with a record of who asked.

/** Pause between looks for orders, for which people at the console wait: most of the time there are none. */
const lookMs = 400;

/** Carries out what operators order at the console. Every worker looks; each order is taken by one, once. */
export function startOrders(services: Services): { close(): Promise<void> } {
  const { orders, clock, log } = services;
  const closing = new AbortController();
  let cancelNext: (() => void) | undefined;
  const slow = new Set<Promise<void>>();
  const fail = (error: unknown): void =>
    log.warn({ error }, "an order of an operator may not have been done");
  const serve = async (): Promise<void> => {
    try {
      for (;;) {
        const taken = closing.signal.aborted ? undefined : await orders.take();
        if (taken === undefined) break;
        const { order, answer } = taken;
        if (order === undefined || !isSlow(order)) {
          await answer(order === undefined ? notPossible : await applyOrder(services, order));
        } else if (slow.size >= maxSlow) await answer({ result: "full" });
        else {
          // Others take their time, and orders to stop something must not wait for them.
          const work = applyOrder(services, order, closing.signal)
            .then(answer)
            .catch(fail)
            .finally(() => slow.delete(work));
          slow.add(work);
        }
      }
    } catch (error) {
      fail(error);
    }
    if (!closing.signal.aborted) cancelNext = clock.after(lookMs, start);
  };
  let serving = Promise.resolve();
  const start = (): void => {
    serving = serve();
  };
  start();
  return {
    close: async () => {
      closing.abort();
      cancelNext?.();
      await serving;
      await Promise.all(slow);
    },
  };
}

/** How many waiting messages are taken out in one go: as many as a session may hold. */
const maxDropped = 1_000;

/** Orders that ask a vendor or the platform: so many at once. */
const maxSlow = 4;

function isSlow({ act }: OperatorOrder): boolean {
  return act.do === "test_model" || act.do === "check_app";
}

const done: OrderResult = { result: "done" };
const notPossible: OrderResult = { result: "not_possible" };
const nothing: OrderResult = { result: "nothing" };

/** Carries out an order. The audit log has it, with the operator's name, before it is carried out. */
export async function applyOrder(
  services: Services,
  { by, act }: OperatorOrder,
  signal?: AbortSignal,
): Promise<OrderResult> {
  services.log.info(
    { by, order: act.do, ...("session" in act ? { session: act.session } : {}) },
    "operator order",
  );
  switch (act.do) {
    case "cancel":
      return await cancel(services, by, act);
    case "reset":
      return await reset(services, by, act.session);
    case "drop":
      return await drop(services, by, act.session);
    case "retry_letter":
    case "discard_letter":
      return await settleLetter(services, by, act);
    case "revoke_rule": {
      const revoked = await services.rules.revoke(act.app, act.ruleId, { id: by });
      return revoked === undefined ? nothing : done;
    }
    case "end_grant":
      return await endGrant(services, by, act);
    case "pause_schedule":
    case "resume_schedule":
    case "delete_schedule":
      return await changeSchedule(services, by, act);
    case "decide":
      return await decide(services, by, act);
    case "pause":
    case "resume":
      return await pauseOrResume(services, by, act);
    case "change_agent":
      return { result: await changeAgent(services, by, act) };
    case "note": {
      const { do: _do, ...record } = act;
      await services.auditLog.append({ ...record, userId: by });
      return done;
    }
    default:
      return await askOthers(services, by, act, signal);
  }
}

async function askOthers(
  services: Services,
  by: string,
  act: OrderAct<"set_provider" | "remove_provider" | "test_model" | "check_app">,
  signal: AbortSignal | undefined,
): Promise<OrderResult> {
  if (act.do === "set_provider") return await setProvider(services, by, act);
  if (act.do === "remove_provider") return await removeProvider(services, by, act.name);
  if (act.do === "check_app") return await checkApp(services, act.app, signal);
  return await testModel(services, act.model, signal);
}

/** How long the platform may take for all that is asked of it about an app, ms. */
const checkMs = 10_000;

/** Looks at an app on the platform. The result leaves out what the platform does not let it read. */
async function checkApp(
  { bots, clock }: Services,
  app: string,
  stop: AbortSignal | undefined,
): Promise<OrderResult> {
  const inspector = bots.get(app)?.openInspector?.();
  if (inspector === undefined) return nothing;
  const signal = deadline(clock, checkMs, ...(stop === undefined ? [] : [stop]));
  try {
    const { name, status } = await inspector.bot(signal);
    const [scopes, subscriptions, connection] = await Promise.all([
      inspector.grantedScopes("tenant", signal).catch(() => undefined),
      inspector.subscriptions(signal).catch(() => undefined),
      inspector.longConnection(signal).then(
        () => ({ isOpen: true }),
        (error: unknown) => ({ isOpen: false, problem: reasonOf(error) }),
      ),
    ]);
    const { published, events, callbacks } = subscriptions ?? {};
    const found: CheckedApp = {
      bot: { name, status },
      connection,
      ...(scopes === undefined ? {} : { scopes: [...scopes] }),
      ...(published === undefined ? {} : { isPublished: published }),
      ...(events === undefined ? {} : { events: [...events] }),
      ...(callbacks === undefined ? {} : { callbacks: [...callbacks] }),
    };
    return { result: "done", app: found };
  } catch (error) {
    return { result: "done", app: { problem: reasonOf(error) } };
  } finally {
    inspector.close();
  }
}

function reasonOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).slice(0, 600);
}

const scheduleKinds = {
  pause_schedule: "schedule_paused",
  resume_schedule: "schedule_resumed",
  delete_schedule: "schedule_deleted",
} as const;

async function changeSchedule(
  { schedules, auditLog, clock }: Services,
  by: string,
  { do: act, schedule: id }: OrderAct<keyof typeof scheduleKinds>,
): Promise<OrderResult> {
  const found = await schedules.read(id);
  if (found === undefined || found.state === "done") return nothing;
  const { schedule } = found;
  const { app, chatId } = schedule;
  await auditLog.append({ kind: scheduleKinds[act], scheduleId: id, app, chatId, userId: by });
  if (act === "delete_schedule") return (await schedules.remove(schedule)) ? done : nothing;
  const nowMs = clock.now();
  const state = act === "pause_schedule" ? "paused" : "active";
  const next = changedSchedule(found, { state }, { nowMs, fromMs: nowMs });
  if ("problem" in next) return { result: "not_possible" };
  const why = state === "paused" ? { why: "operator" } : {};
  return (await schedules.change(found, { ...next, ...why })) ? done : { result: "conflict" };
}

async function cancel(
  services: Services,
  by: string,
  { session, seq }: OrderAct<"cancel">,
): Promise<OrderResult> {
  const turnId = turnIdOf(session, seq);
  await services.auditLog.append({ kind: "turn_cancelled", session, turnId, userId: by });
  return (await cancelTurn(services, session, turnId)) ? done : nothing;
}

/**
 * Stops a turn as a person's `/stop` does, for the turn of any person: the cancel is stored first, then published to
 * all workers.
 */
async function cancelTurn(
  { store, turns, cancels }: Services,
  session: SessionKey,
  turnId: string,
): Promise<boolean> {
  const { accepted, wakeGen } = await store.cancel(session, { turnId, reason: "cancelled" });
  if (wakeGen !== undefined) await turns.wake(session, wakeGen);
  await cancels.publish({ session, turnId });
  return accepted;
}

/** Ends the turn whatever its state, and begins a new conversation. The store keeps the record of it. */
async function reset(services: Services, by: string, session: SessionKey): Promise<OrderResult> {
  const { store, turns, cancels, clock } = services;
  const replyOf: ResetOptions["replyOf"] = async (id, message, onCard) =>
    resetReply(id, message, { onCard, nowMs: clock.now() });
  const {
    turnId,
    wakeGen,
    runners = [],
    helpers = [],
    asker,
  } = await store.reset(session, { by, replyOf });
  if (wakeGen !== undefined) await turns.wake(session, wakeGen);
  if (asker !== undefined) await turns.wake(asker.session, asker.wakeGen);
  // Wakes waiting helpers and makes running ones look; each stops the helpers below it.
  const stopHelper = async (helper: SessionKey): Promise<void> => {
    const gen = await store.queuedGeneration(helper);
    if (gen !== undefined) await turns.wake(helper, gen);
    await cancels.publish({ session: helper, turnId: turnIdOf(helper, 1) });
  };
  await Promise.all(helpers.map(stopHelper));
  if (turnId === undefined) return nothing;
  // The worker that runs it is fenced already; this makes its model and its tools stop at once.
  await Promise.all([
    cancels.publish({ session, turnId }),
    ...runners.map(async (runner) => await stopCalls(services, runner, { session, turnId })),
  ]);
  return { ...done, turnId };
}

/**
 * The record that closes the card, or is sent in place of the answer. It has the ids and the key of the turn's own
 * answer, so a person gets one of the two. `onCard`: whether the turn has a card.
 */
export function resetReply(
  turnId: string,
  message: InboundMessage,
  { onCard, nowMs }: { onCard: boolean; nowMs: number },
): OutboxRecord | undefined {
  const { id, session, reply, language = "en" } = message;
  if (reply.channel === "none") return undefined;
  const text = [noticeText("stopped", language), noticeText("newConversation", language)].join(" ");
  const { channel: _channel, ...target } = reply;
  const others = { thinking: "", tools: [], earlierTools: 0, footer: {} };
  return {
    v: 1,
    id: turnId,
    uuid: answerUuid(reply.app, id),
    session,
    target,
    text,
    ...(onCard ? { view: { v: 1, language, state: "stopped", answer: text, ...others } } : {}),
    createdAtMs: nowMs,
    attempts: 0,
    uncertainSinceMs: 0,
  };
}

/** Takes the waiting messages out of the inbox, each as its person would. */
async function drop(services: Services, by: string, session: SessionKey): Promise<OrderResult> {
  await services.auditLog.append({ kind: "inbox_dropped", session, userId: by });
  const waiting = await services.store.waiting(session, maxDropped);
  const dropped = await Promise.all(
    waiting.map(async ({ seq }) => await cancelTurn(services, session, turnIdOf(session, seq))),
  );
  return dropped.includes(true) ? done : nothing;
}

/** Its record is the one of the grant's end. */
async function endGrant(
  { grants, personTokens, clock }: Services,
  by: string,
  person: OrderAct<"end_grant">,
): Promise<OrderResult> {
  if (grants === undefined || personTokens === undefined) return { result: "not_possible" };
  const grant = await grants.book.read(person);
  if (grant === undefined) return nothing;
  const end = { reason: "operator", by, atMs: Math.max(clock.now(), grant.grantedAtMs) };
  return (await personTokens.end(grant, end)) ? done : nothing;
}

/**
 * Says an operator's word about a call where its policy names operators. All of them are one person, because anyone with
 * the password can claim any name. The store keeps the record of it.
 */
async function decide(
  { approvals, turns }: Services,
  by: string,
  { app, approvalId, word, argumentsHash }: OrderAct<"decide">,
): Promise<OrderResult> {
  const found = await approvals.find(app, approvalId);
  if (found === undefined) return nothing;
  const { approval } = found;
  if (!operatorsDecide(approval) || approval.argumentsHash !== argumentsHash) {
    return { result: "not_possible" };
  }
  const [id = by, ...name] = by.split(":");
  const operator = name.length === 0 ? { id } : { id, name: name.join(":") };
  const decided = await approvals.decide(approval.session, approvalId, {
    decision: word,
    by: operator,
    via: "console",
  });
  if (decided.result === "unknown") return nothing;
  if ("wakeGen" in decided && decided.wakeGen !== undefined) {
    await turns.wake(approval.session, decided.wakeGen);
  }
  return decided.result === "settled" || decided.result === "counted" ? done : nothing;
}

/** Pauses or resumes an agent or a tool. One that no longer exists can be resumed, too. The store keeps the audit record. */
async function pauseOrResume(
  { pauses, agents, toolCatalog }: Services,
  by: string,
  { do: deed, what, name }: OrderAct<"pause" | "resume">,
): Promise<OrderResult> {
  const exists = what === "agent" ? agents.has(name) : toolCatalog.names().includes(name);
  if (deed === "pause" && !exists) return { result: "not_possible" };
  return { result: await pauses.set({ what, name }, deed === "pause", by) };
}

async function settleLetter(
  services: Services,
  by: string,
  { do: deed, session, letterId }: OrderAct<"retry_letter" | "discard_letter">,
): Promise<OrderResult> {
  const { deadLetters, auditLog } = services;
  const letter = await deadLetters.find(session, letterId);
  if (letter === undefined) return nothing;
  const kind = deed === "retry_letter" ? "letter_retried" : "letter_discarded";
  const { turnId, app } = letter;
  await auditLog.append({
    kind,
    session,
    letterId,
    userId: by,
    ...(turnId === undefined ? {} : { turnId }),
    ...(app === undefined ? {} : { app }),
  });
  if (deed === "discard_letter") {
    return (await deadLetters.discard(session, letterId)) ? done : nothing;
  }
  if (letter.kind === "approval") return { result: "not_possible" };
  if (letter.kind === "message") return await runAgain(services, letter);
  return (await deadLetters.resend(session, letterId)) ? done : nothing;
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
  { store, deadLetters, turns }: Services,
  { session, id, message, turnId = id }: Extract<DeadLetter, { kind: "message" }>,
): Promise<OrderResult> {
  const { result, wakeGen } = await store.append(messageAgain(message, turnId));
  if (result === "full") return { result: "full" };
  if (wakeGen !== undefined) await turns.wake(session, wakeGen);
  await deadLetters.discard(session, id);
  return done;
}
