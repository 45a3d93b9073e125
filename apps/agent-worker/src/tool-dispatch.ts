import type { CallState, ToolJob, TurnState } from "@larkline/protocol";
import type { ToolQueues } from "@larkline/queue";
import type { AvailableTool, DeliverResult, SessionStore } from "@larkline/session";

export interface ToolDispatch {
  queues: Pick<ToolQueues, "dispatch">;
  store: Pick<SessionStore, "deliver">;
  wake: (session: string, deliver: DeliverResult) => Promise<void>;
}

function jobOf(turn: TurnState, call: CallState, { announcement }: AvailableTool): ToolJob {
  const { message } = turn;
  return {
    v: 1,
    session: message.session,
    turnId: turn.turnId,
    callId: call.id,
    name: call.name,
    arguments: JSON.stringify(call.arguments),
    effect: announcement.effect,
    actor: {
      app: message.app,
      userId: message.sender.id,
      ...(message.sender.name === undefined ? {} : { userName: message.sender.name }),
      chatId: message.reply.channel === "feishu" ? message.reply.chatId : message.session,
    },
    deadlineMs: call.deadlineMs ?? 0,
  };
}

/**
 * Hands calls to their runners. They are open in the ledger already, so a crash in between only
 * delays: the successor hands out all unanswered ones again under the same job ids. A call whose
 * runner has gone in the meantime is answered at once.
 */
export async function dispatchCalls(
  { queues, store, wake }: ToolDispatch,
  turn: TurnState,
  { calls, tools }: { calls: readonly CallState[]; tools: ReadonlyMap<string, AvailableTool> },
): Promise<void> {
  const byRunner = new Map<string, ToolJob[]>();
  const { session } = turn.message;
  for (const call of calls) {
    const tool = tools.get(call.name);
    if (tool === undefined) {
      const error = `tool_not_found: the runner that offered '${call.name}' is gone. If this call was handed out before, it may have run.`;
      await wake(session, await store.deliver(session, call.id, { ok: false, error }));
      continue;
    }
    const jobs = byRunner.get(tool.runner) ?? [];
    byRunner.set(tool.runner, [...jobs, jobOf(turn, call, tool)]);
  }
  await Promise.all([...byRunner].map(async ([runner, jobs]) => await queues.dispatch(runner, jobs)));
}
