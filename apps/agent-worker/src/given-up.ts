import { traceIdOf, traceparentOfMessage, sharedNow } from "@larkline/protocol";
import type { DeadLetters } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import type { SessionRunnerOptions } from "./session-runner.ts";

/**
 * Keeps messages that are given up. Comes before the turn's end, and names the turn: whoever dies
 * in between leaves the same letter once more.
 */
export function createGivenUp(deps: {
  letters: Pick<DeadLetters, "add">;
  logger: Logger;
  now?: () => number;
}): NonNullable<SessionRunnerOptions["onGivenUp"]> {
  const { letters, logger, now = sharedNow } = deps;
  return async (message, { turnId, reason }) => {
    const { session, app, id: messageId } = message;
    const traceId = traceIdOf(traceparentOfMessage(message));
    const about = { id: `turn:${turnId}`, session, app, turnId, messageId, traceId, reason, atMs: now() };
    await letters.add({ v: 1, kind: "message", ...about, message }).catch((error: unknown) => {
      logger.error({ error, session, turnId }, "a message that is given up is not kept");
    });
  };
}
