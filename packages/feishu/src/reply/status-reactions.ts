import type { LookupCache } from "@larkline/store/platform";
import type { FeishuApi } from "../feishu-api.ts";
import { FeishuError } from "../transport/error.ts";
import type { FeishuLogger } from "../transport/sdk.ts";
import type { DeliveryWatch } from "./outbox-sender.ts";

/** What a reaction on a person's message says: it waits for its turn, or is being answered. */
export type ReactionPurpose = "queued" | "typing";

/** Emoji types of the platform ("Reaction emoji"). */
const emojiOf: Readonly<Record<ReactionPurpose, string>> = {
  queued: "OneSecond",
  typing: "Typing",
};

/** A line that says that a message waits is of this purpose in outboxes: the id of its record begins so. */
const lineId = /^queued-/;

/** How long the id of a reaction or a line is kept. */
const keptMs = 24 * 3_600_000;
/** How much later than its removal an addition may arrive that began before. */
const lateMs = 60_000;

/**
 * Reactions and lines that show the state of a person's message. Failures are logged and never reach the caller.
 *
 * Any process may remove what another one adds. The adder stores the reaction and then checks whether it was
 * removed; the remover stores the removal and then looks for the reaction. So at least one of them sees the
 * other, and the lookup cache gives the reaction to one of them only.
 */
export class StatusReactions {
  readonly #api: FeishuApi;
  readonly #lookups: LookupCache;
  readonly #logger: FeishuLogger;

  constructor({
    api,
    lookups,
    logger,
  }: {
    api: FeishuApi;
    lookups: LookupCache;
    logger: FeishuLogger;
  }) {
    this.#api = api;
    this.#lookups = lookups;
    this.#logger = logger;
  }

  async add(messageId: string, purpose: ReactionPurpose): Promise<void> {
    const key = this.#keyOf(messageId, purpose);
    try {
      if ((await this.#lookups.get(`${key}:over`)) !== undefined) return;
      const reactionId = await this.#api.messages.addReaction(messageId, emojiOf[purpose], {
        priority: "frame",
      });
      await this.#lookups.set(key, reactionId, keptMs);
      if ((await this.#lookups.get(`${key}:over`)) !== undefined) {
        await this.#takeBack(messageId, key, purpose);
      }
    } catch (error) {
      this.#failed(error);
    }
  }

  /** Watches an outbox for lines that say what a message waits for, so that they go with its wait. */
  watchLines(watch: DeliveryWatch | undefined): DeliveryWatch {
    return (record) => {
      const ended = watch?.(record);
      return (result) => {
        ended?.(result);
        const { app, messageId } = record.target;
        const isLine = app === this.#api.appId && lineId.test(record.id) && messageId !== "";
        const [sent] = result.state === "sent" ? result.messageIds : [];
        if (isLine && sent !== undefined) void this.#noteLine(messageId, sent);
      };
    };
  }

  async #noteLine(messageId: string, sent: string): Promise<void> {
    const key = this.#keyOf(messageId, "line");
    try {
      await this.#lookups.set(key, sent, keptMs);
      if ((await this.#lookups.get(`${key}:over`)) !== undefined) {
        await this.#takeBack(messageId, key, "line");
      }
    } catch (error) {
      this.#failed(error);
    }
  }

  /** Takes back the reaction or the line that any process added, or is about to add. */
  async remove(messageId: string, purpose: ReactionPurpose | "line"): Promise<void> {
    const key = this.#keyOf(messageId, purpose);
    try {
      await this.#lookups.set(`${key}:over`, "over", lateMs);
      await this.#takeBack(messageId, key, purpose);
    } catch (error) {
      this.#failed(error);
    }
  }

  async #takeBack(
    messageId: string,
    key: string,
    purpose: ReactionPurpose | "line",
  ): Promise<void> {
    const id = await this.#lookups.take(key);
    if (id === undefined) return;
    if (purpose === "line") await this.#api.messages.recall(id);
    else await this.#api.messages.removeReaction(messageId, id);
  }

  #keyOf(messageId: string, purpose: ReactionPurpose | "line"): string {
    return `reaction:${this.#api.appId}:${messageId}:${purpose}`;
  }

  #failed(error: unknown): void {
    if (!(error instanceof FeishuError)) this.#logger.warn({ err: error }, "reaction not changed");
    else {
      this.#logger.debug(
        { api: error.api, kind: error.kind, code: error.code },
        "reaction not changed",
      );
    }
  }
}
