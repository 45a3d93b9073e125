import { personMessageOf } from "@larkline/agent/messages";
import type { Approval } from "@larkline/protocol/approval";
import { newEngineError, type ErrorCode } from "@larkline/protocol/error";
import type { EventRecord } from "@larkline/protocol/event";
import type { AnyMessage } from "@larkline/protocol/views/chat-messages";
import { MessageView } from "@larkline/protocol/views/chat-view";
import type { RunRecord } from "@larkline/protocol/views/engine-events";
import { EngineView, type RunFacts } from "@larkline/protocol/views/engine-view";
import {
  conversationItems,
  userItemOf,
  type ParsedInput,
} from "@larkline/protocol/views/item-input";
import { ItemView, type RunResult } from "@larkline/protocol/views/item-view";
import type { RunItem } from "@larkline/protocol/views/run-items";
import type { Decision, EngineTurn } from "./turn.ts";

/**
 * One run: a stream of records that ends in exactly one `done` or `error`, and then the totals of its session. It begins when it is first read, waits for
 * slow readers, and is cancelled when its last reader leaves early. All views may be read several times and together.
 */
export class EngineRun implements AsyncIterable<RunRecord> {
  readonly id: string;
  readonly sessionId: string;
  /** Resolves when the run has ended. */
  readonly over: Promise<void>;
  readonly #turn: EngineTurn;
  readonly #given: ParsedInput["history"];
  /** Results that are waited for. */
  #awaited = 0;

  /** Made by {@link Engine.run}. `given`: the conversation that its input brings. */
  constructor(turn: EngineTurn, given: ParsedInput["history"]) {
    this.#turn = turn;
    this.#given = given;
    this.id = turn.id;
    this.sessionId = turn.head.message.session;
    this.over = turn.over;
  }

  /** Everything that happens, as it happens. Never throws for what happens in the run. */
  async *[Symbol.asyncIterator](): AsyncGenerator<RunRecord> {
    const view = new EngineView(this.#facts());
    for await (const record of this.#read()) {
      const shown = view.push(record);
      if (shown !== undefined) yield shown;
    }
  }

  /** Messages, calls and their outputs, each when it is complete. */
  async *items(): AsyncGenerator<RunItem> {
    const view = new ItemView(this.#facts());
    for await (const record of this.#read()) yield* view.push(record);
  }

  /** The run as chat messages, the person's first. */
  async *messages(): AsyncGenerator<AnyMessage> {
    const [view, person] = [
      new MessageView(this.#facts()),
      personMessageOf(this.#turn.head.message),
    ];
    for await (const record of this.#read()) yield* view.push({ ...record, person });
  }

  /** What has become of the run, when it has ended. Rejects with an EngineError where it ended with an error. */
  async result(): Promise<RunResult> {
    this.#awaited += 1;
    try {
      const { parts } = this.#turn.head.message;
      const view = new ItemView(this.#facts(), [
        ...conversationItems(this.#given, this.id),
        userItemOf(parts),
      ]);
      for await (const record of this.#read()) view.push(record);
      const result = view.result();
      if (result.error === null) return result;
      const { code, message, suggestion, retryable } = result.error;
      throw newEngineError(code as ErrorCode, message, { suggestion, retryable }); // as our own table has it
    } finally {
      this.#awaited -= 1;
    }
  }

  /** Ends the run with `done` and reason `cancelled`. One that has ended stays as it is. */
  cancel(): void {
    this.#turn.cancel();
  }

  /** Approvals that the run waits for. */
  get approvals(): readonly Approval[] {
    return this.#turn.approvals;
  }

  /** Decides an approval: the `id` of its `permission_request`. Throws a RangeError when the run waits for none of this id. */
  approve(id: string, decision: Decision): void {
    this.#turn.approve(id, decision);
  }

  #facts(): RunFacts {
    const { createdAtMs } = this.#turn.head.message;
    return {
      runId: this.id,
      sessionId: this.sessionId,
      agent: this.#turn.agent,
      startedAtMs: createdAtMs,
    };
  }

  async *#read(): AsyncGenerator<EventRecord> {
    this.#turn.start();
    const { events } = this.#turn;
    try {
      yield* events.read();
    } finally {
      if (!events.hasReaders && this.#awaited === 0) this.cancel();
    }
  }
}
