import type { CallState, ToolEffect, ToolJob, TurnState } from "@larkline/protocol";
import type { ToolQueues } from "@larkline/queue";
import type { AvailableTool, DeliverResult, SessionStore } from "@larkline/session";

export interface ToolDispatch {
  queues: Pick<ToolQueues, "dispatch">;
  store: Pick<SessionStore, "deliver">;
  wake: (session: string, deliver: DeliverResult) => Promise<void>;
}

/** Who runs a call. */
interface Target {
  runner: string;
  effect: ToolEffect;
}

function jobOf(turn: TurnState, call: CallState, { effect }: Target): ToolJob {
  const { message } = turn;
  return {
    v: 1,
    session: message.session,
    turnId: turn.turnId,
    callId: call.id,
    name: call.name,
    arguments: JSON.stringify(call.arguments),
    effect,
    actor: {
      app: message.app,
      userId: message.sender.id,
      ...(message.sender.name === undefined ? {} : { userName: message.sender.name }),
      chatId: message.reply.channel === "feishu" ? message.reply.chatId : message.session,
    },
    deadlineMs: call.deadlineMs ?? 0,
  };
}

// Jobs are limited to 256 KB (packages/queue); whatever else a job holds is small.
const maxArgumentBytes = 200_000;

/** The calls of one hand-out. `again`: they may have been handed out before. */
export interface CallBatch {
  calls: readonly CallState[];
  again: boolean;
  tools: ReadonlyMap<string, AvailableTool>;
}

/**
 * A call that was handed out before may be queued or running: it belongs to its runner, who
 * answers what it does not run any more when it stops; after a crash the sweeper does.
 */
function targetOf(call: CallState, { again, tools }: CallBatch): Target | undefined {
  const { runner, effect } = call;
  if (again && runner !== undefined && effect !== undefined) return { runner, effect };
  const tool = tools.get(call.name);
  return tool === undefined ? undefined : { runner: tool.runner, effect: tool.announcement.effect };
}

/** Who runs the call, or in words why nobody does. */
function planOf(call: CallState, batch: CallBatch): Target | string {
  const bytes = Buffer.byteLength(JSON.stringify(call.arguments));
  if (bytes > maxArgumentBytes) {
    return `The arguments are too large (${bytes} bytes, at most ${maxArgumentBytes}). The call was not run.`;
  }
  const target = targetOf(call, batch);
  if (target !== undefined) return target;
  const ran = batch.again ? "If it was handed out before, it may have run." : "The call was not run.";
  return `tool_not_found: the runner that offered '${call.name}' is gone. ${ran}`;
}

/**
 * Hands calls to their runners. They are open in the ledger already, so a crash in between only
 * delays: the successor hands out all unanswered ones again under the same job ids. A new call
 * whose runner has gone in the meantime is answered at once.
 */
export async function dispatchCalls(
  { queues, store, wake }: ToolDispatch,
  turn: TurnState,
  batch: CallBatch,
): Promise<void> {
  const byRunner = new Map<string, ToolJob[]>();
  const { session } = turn.message;
  for (const call of batch.calls) {
    const target = planOf(call, batch);
    if (typeof target === "string") {
      await wake(session, await store.deliver(session, call.id, { ok: false, error: target }));
      continue;
    }
    const jobs = byRunner.get(target.runner) ?? [];
    byRunner.set(target.runner, [...jobs, jobOf(turn, call, target)]);
  }
  await Promise.all([...byRunner].map(async ([runner, jobs]) => await queues.dispatch(runner, jobs)));
}
