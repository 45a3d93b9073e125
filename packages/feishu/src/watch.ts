import type { OutboxRecord } from "@larkline/store";
import type { FeishuError } from "./error.ts";

// What others are told of the work of this package, while it goes on. Nothing of it may throw or take time.

/** A call of the platform, as far as it is nobody's secret. */
export interface WatchedCall {
  /** Such as `im.message.reply`. */
  api: string;
  /** Of the message that it is made for, where that is known. */
  traceparent: string | undefined;
}

/** Watches the calls of one app. */
export interface CallWatch {
  /** The shared limits have let it go after this time, or (`left` is false) never. */
  waited(call: WatchedCall, ms: number, left: boolean): void;
  /** It leaves; what is returned is told how it ended. */
  began(call: WatchedCall): (error?: FeishuError) => void;
}

/** How a try to send a reply ended. */
export type DeliveryResult =
  | { state: "sent" }
  /** Another sender has it, or will take it. */
  | { state: "left" }
  /** Tried again in `retryInMs`, or given up. */
  | { state: "failed" | "given_up"; error: FeishuError; retryInMs: number };

/** Told when a try begins; what is returned is told how it ended. */
export type DeliveryWatch = (record: OutboxRecord) => (result: DeliveryResult) => void;
