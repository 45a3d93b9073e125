import type { Approval } from "@larkline/protocol";
import { approvalFactsOf } from "./audit-facts.ts";
import type { CommitRequest, FencedWrite, SaveRequest } from "./session-store.ts";
import type { SessionKeys } from "./keys.ts";
import type { StateSeal } from "./state-seal.ts";
import { batchOf } from "./stored.ts";

type Args = (string | number)[];

/** How many approvals of one session are kept when nothing else is configured. */
export const defaultMaxApprovals = 200;

/** How the scripts take what a write says about the context. */
function contextArgs({ context, session, epoch }: FencedWrite, seal: StateSeal): [string, string] {
  if (context === undefined) return ["", ""];
  const { keep, summary } = context;
  const sealed = summary && seal.seal("summary", session, { epoch, text: JSON.stringify(summary) });
  return [String(keep), sealed ?? ""];
}

/** The keys of a session's approvals and of their audit records, as the scripts take them. */
export function approvalKeysOf(keys: SessionKeys): string[] {
  return [keys.audit, keys.approvals, keys.pending, keys.kept, keys.expiries, keys.approvalCards, keys.said];
}

/** The keys of all that a turn's end touches, as the scripts that end one take them. */
export function endingKeysOf(keys: SessionKeys): string[] {
  return [
    keys.session,
    keys.inbox,
    keys.control,
    keys.calls,
    keys.deadlines,
    keys.dirty,
    keys.history,
    keys.events,
    keys.outbox,
    keys.due,
    ...approvalKeysOf(keys),
    keys.ended,
    keys.untended,
    keys.requests,
  ];
}

/** One approval, as the scripts that create it take it. */
export function approvalArgs(approval: Approval): Args {
  const { id, kind, turnId, callId, createdAtMs, expiresAtMs, deciders, argumentsHash, target } = approval;
  return [
    id,
    JSON.stringify(approval),
    kind,
    turnId,
    callId,
    createdAtMs,
    expiresAtMs,
    deciders.count,
    JSON.stringify(argumentsHash),
    target.channel === "none" ? 0 : 1,
    JSON.stringify(approvalFactsOf(approval)),
  ];
}

/** The arguments of `saveLua`, but for the last. */
export function saveArgs(
  request: SaveRequest,
  { seal, channel, maxApprovals }: { seal: StateSeal; channel: string; maxApprovals: number },
): Args {
  const { session, epoch, history, open, events, approvals = [], absorbed = [] } = request;
  return [
    epoch,
    session,
    seal.seal("turn", session, { epoch, text: JSON.stringify(request.turn) }),
    request.consumed,
    request.mode === "suspend" && request.wakeAtMs !== undefined ? `suspend ${request.wakeAtMs}` : request.mode,
    channel,
    batchOf(events),
    events.length,
    ...contextArgs(request, seal),
    history.length,
    open.length,
    approvals.length,
    maxApprovals,
    request.turn.needs === undefined ? "" : JSON.stringify(request.turn.needs),
    request.waits ?? "",
    ...history.map((message) => JSON.stringify(message)),
    ...open.flatMap(({ callId, deadlineMs, facts }) => [callId, deadlineMs, JSON.stringify(facts)]),
    ...approvals.flatMap(approvalArgs),
    ...absorbed,
  ];
}

/** The arguments of `commitLua`, but for the last. */
export function commitArgs(
  request: CommitRequest,
  { seal, channel, token, leaseMs }: { seal: StateSeal; channel: string; token: string; leaseMs: number },
): Args {
  const { session, epoch, outbox, settings } = request;
  return [
    epoch,
    session,
    request.seq,
    request.more ? 1 : 0,
    channel,
    batchOf(request.events),
    request.events.length,
    outbox === undefined ? "" : JSON.stringify(outbox),
    token,
    leaseMs,
    ...contextArgs(request, seal),
    settings === undefined ? "" : seal.seal("settings", session, { epoch, text: JSON.stringify(settings) }),
    ...request.history.map((message) => JSON.stringify(message)),
  ];
}
