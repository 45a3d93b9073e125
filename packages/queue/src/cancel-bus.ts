import { jsonParserOf, SessionKey } from "@larkline/protocol";
import { Type, type Static } from "typebox";
import { createBus, type Bus, type PubSubConnection } from "./bus.ts";

const Cancellation = Type.Object({ session: SessionKey, turnId: Type.Optional(Type.String()) });

/** Says that a turn (or whatever runs in the session) is to stop now. */
export type Cancellation = Static<typeof Cancellation>;

/**
 * The durable cancel is the control entry in the session's inbox, which also finds turns that nobody
 * is running; this makes it quick.
 */
export type CancelBus = Bus<Cancellation>;

const parse = jsonParserOf(Cancellation);

/** Where one runner is told which of its calls are to stop; it hears of no other runner's. */
export function cancelChannelOf(namespace: string, runner: string): string {
  return `{${namespace}}:cancel:${runner}`;
}

export function createCancelBus(options: { connection: PubSubConnection; channel?: string }): CancelBus {
  return createBus({ connection: options.connection, channel: options.channel ?? "{larkline}:cancel", parse });
}
