import type { Approval } from "@larkline/protocol";
import { approvalFactsOf } from "./audit-log.ts";
import type { CommitRequest, FencedWrite, SaveRequest } from "./session-types.ts";
import type { StateSeal } from "./state-seal.ts";
import { batchOf } from "./stored.ts";

type Values = Record<string, string | number | string[]>;

/** How many approvals of one session are kept when nothing else is configured. */
export const defaultMaxApprovals = 200;

/** What a write says about the context, as the scripts take it. */
function contextValues({ context, session, epoch }: FencedWrite, seal: StateSeal): Values {
  if (context === undefined) return { keep: "", summary: "" };
  const { keep, summary } = context;
  const sealed = summary && seal.seal("summary", session, { epoch, text: JSON.stringify(summary) });
  return { keep: String(keep), summary: sealed ?? "" };
}

/** One approval, as the scripts that create it take it. */
export function newApproval(approval: Approval): object {
  const { id, kind, turnId, callId, createdAtMs, expiresAtMs, deciders, argumentsHash, target } = approval;
  return {
    id,
    approval: JSON.stringify(approval),
    kind,
    turnId,
    callId,
    createdAtMs,
    expiresAtMs,
    need: deciders.count,
    hash: JSON.stringify(argumentsHash),
    hasCards: target.channel === "none" ? "0" : "1",
    facts: JSON.stringify(approvalFactsOf(approval)),
  };
}

/** A list as the scripts take it that is mostly empty. */
function listed(items: readonly unknown[]): string {
  return items.length === 0 ? "" : JSON.stringify(items);
}

/** What the script `save` takes beside its keys. */
export function saveValues(request: SaveRequest, seal: StateSeal): Values {
  const { session, epoch, mode, open, events, turn, approvals = [], absorbed = [] } = request;
  return {
    epoch,
    sid: session,
    turn: seal.seal("turn", session, { epoch, text: JSON.stringify(turn) }),
    consumed: request.consumed,
    mode,
    wakeAtMs: (mode === "suspend" ? request.wakeAtMs : undefined) ?? "",
    batch: batchOf(events),
    batchSize: events.length,
    ...contextValues(request, seal),
    needs: turn.needs === undefined ? "" : JSON.stringify(turn.needs),
    waits: request.waits ?? "",
    opened: listed(open.map(({ callId, deadlineMs, facts }) => ({ callId, deadlineMs, facts: JSON.stringify(facts) }))),
    newApprovals: listed(approvals.map(newApproval)),
    absorbed: listed(absorbed),
    messages: request.history.map((message) => JSON.stringify(message)),
  };
}

/** What the script `commit` takes beside its keys. */
export function commitValues(request: CommitRequest, seal: StateSeal): Values {
  const { session, epoch, outbox, settings, events } = request;
  return {
    epoch,
    sid: session,
    seq: request.seq,
    more: request.more ? 1 : 0,
    batch: batchOf(events),
    batchSize: events.length,
    reply: outbox === undefined ? "" : JSON.stringify(outbox),
    ...contextValues(request, seal),
    settings: settings === undefined ? "" : seal.seal("settings", session, { epoch, text: JSON.stringify(settings) }),
    messages: request.history.map((message) => JSON.stringify(message)),
  };
}
