import { finalView, runningView, type LiveStep } from "@larkline/agent";
import type { LiveReply } from "@larkline/feishu";
import type { ReplyView, TurnState } from "@larkline/protocol";
import type { TurnRunOptions } from "./turn-options.ts";

/** What is to be shown, asked for at the moment it is shown. */
export interface ReplySource {
  turn(): TurnState;
  /** The step that streams right now. */
  live(): LiveStep | undefined;
}

export type TurnReplyOptions = Pick<TurnRunOptions, "chain" | "now" | "openReply" | "viewOf">;

/** The reply to a turn's message: the card that types while it runs, and what stays of it. */
export class TurnReply {
  readonly #options: TurnReplyOptions;
  readonly #source: ReplySource;
  #reply: LiveReply | undefined;
  /** What a card of the reply shows now. */
  #view: (() => ReplyView) | undefined;

  constructor(options: TurnReplyOptions, source: ReplySource) {
    this.#options = options;
    this.#source = source;
  }

  open(epoch: string): void {
    const turn = this.#source.turn();
    const options = this.#options.viewOf(turn.message);
    if (options === undefined) return;
    const running = (): ReplyView =>
      runningView(this.#source.turn(), this.#source.live(), { ...options, nowMs: this.#options.now() });
    this.#view = running;
    this.#reply = this.#options.openReply({ turn, epoch, view: () => (this.#view ?? running)() });
    this.#reply?.changed();
  }

  changed(): void {
    this.#reply?.changed();
  }

  /** From now on the card stays as it is: how the turn ends is for the delivery of the answer to show. */
  freeze(): void {
    this.#reply?.answered();
    const seen = this.#view?.();
    if (seen !== undefined) this.#view = () => seen;
  }

  /** The turn is suspended: whoever resumes it goes on with the same card. */
  pause(): void {
    this.#reply?.pause();
    this.#reply = undefined;
  }

  /** Resolves when nothing is on its way to the card any more. */
  async release(): Promise<void> {
    await this.#reply?.release();
  }

  /** What stays of the reply; undefined where it is not shown on cards. `answeredBy`: id of the model of the last step. */
  final(reply: string | undefined, reason: string, answeredBy: string | undefined): ReplyView | undefined {
    const turn = this.#source.turn();
    const options = this.#options.viewOf(turn.message);
    if (options === undefined || reply === undefined || reply.trim() === "") return undefined;
    const answered = this.#options.chain.models.find(({ id }) => id === answeredBy);
    const model = answered?.displayName ?? options.model;
    return finalView(turn, { reply, reason }, { ...options, nowMs: this.#options.now(), model });
  }
}
