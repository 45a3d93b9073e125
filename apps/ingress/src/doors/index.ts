import type { Envelope } from "@larkline/feishu";
import { FeishuError } from "@larkline/feishu";
import { subscriptionsOf } from "@larkline/process/config";
import { pause } from "@larkline/protocol/clock";
import type { FastifyInstance } from "fastify";
import type { Bot } from "../bot.ts";
import type { Services } from "../services.ts";
import { approvalChanged } from "./approvals.ts";
import { commentAdded } from "./comments.ts";
import { registerMessageRoutes } from "./messages.ts";
import { personalDoors } from "./personal.ts";
import { reactionCame } from "./reactions.ts";
import { taskChanged } from "./tasks.ts";
import { registerTriggerRoutes } from "./triggers.ts";

// Ways in besides messages. Each is shut unless `doors` of the configuration opens it; one that is shut does nothing.

type DoorRoutes = (scope: FastifyInstance, services: Services, bots: readonly Bot[]) => void;

/** Routes for callers of the HTTP API. */
export const callerDoors: readonly DoorRoutes[] = [registerMessageRoutes];

/** Routes that check themselves who comes. */
export const signedDoors: readonly DoorRoutes[] = [registerTriggerRoutes];

/**
 * The handlers of further events, by type. When one rejects, the event is not acknowledged and the platform delivers it
 * again.
 */
export const eventDoors: ReadonlyMap<
  string,
  (services: Services, bot: Bot, envelope: Envelope) => Promise<void>
> = new Map([
  ["im.message.reaction.created_v1", reactionCame],
  ["drive.notice.comment_add_v1", commentAdded],
  ["task.task.update_user_access_v2", taskChanged],
  ["approval_instance", approvalChanged],
  ["approval_task", approvalChanged],
  ...personalDoors,
]);

const retryMs = { first: 1_000, longest: 60_000 } as const;

/** Subscribes the app of a bot to the events of doors that need it, in the background: until it works, or is refused. */
export function subscribe(
  { clock, settings }: Services,
  { name, api, background, log }: Bot,
): void {
  for (const to of subscriptionsOf(settings.doors, name)) {
    background.run("subscription", async (signal) => {
      for (let waitMs: number = retryMs.first; !signal.aborted;) {
        try {
          await api.subscribe(to, { signal });
          log.info({ to }, "the app has subscribed itself to events");
          return;
        } catch (error) {
          if (signal.aborted) return;
          if (!(error instanceof FeishuError) || !error.retryable) throw error;
          log.warn(
            { to, error, retryInMs: waitMs },
            "the app could not subscribe itself to events",
          );
          await pause(clock, waitMs, signal);
          waitMs = Math.min(waitMs * 2, retryMs.longest);
        }
      }
    });
  }
}
