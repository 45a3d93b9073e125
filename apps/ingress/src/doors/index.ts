import type { Envelope } from "@larkline/feishu";
import type { FastifyInstance } from "fastify";
import type { Bot } from "../bot.ts";
import type { Services } from "../services.ts";
import { commentAdded } from "./comments.ts";
import { registerMessageRoutes } from "./messages.ts";
import { personalDoors } from "./personal.ts";
import { reactionCame } from "./reactions.ts";
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
  ...personalDoors,
]);
