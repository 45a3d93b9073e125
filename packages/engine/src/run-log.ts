import {
  isTerminal,
  type EngineError,
  type EngineEvent,
  type EventRecord,
} from "@larkline/protocol";

/** Records that a reader may be behind before the run waits for it. */
const maxBehind = 256;

/** The events of a run, for any number of readers: each of them sees all of it, from the beginning. */
export class RunLog {
  readonly #records: EventRecord[] = [];
  readonly #readers = new Set<{ at: number }>();
  #wakers: (() => void)[] = [];
  #hasEndRecord = false;
  #hasEnded = false;

  /** The last event. */
  get last(): EngineEvent | undefined {
    return this.#records.at(-1)?.event;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Whether anything follows. */
  get hasReaders(): boolean {
    return this.#readers.size > 0;
  }

  /** Adds an event; events after the end are dropped. */
  push(record: () => EventRecord): void {
    if (this.#hasEnded || this.#hasEndRecord) return;
    const next = record();
    this.#hasEndRecord = isTerminal(next.event);
    this.#records.push(next);
    this.wake();
  }

  /** Nothing follows but this record. */
  end(last: EventRecord): void {
    this.#records.push(last);
    this.#hasEnded = true;
    this.wake();
  }

  /** Everything, until the end. */
  async *read(): AsyncGenerator<EventRecord> {
    const reader = { at: 0 };
    this.#readers.add(reader);
    try {
      for (;;) {
        const record = this.#records[reader.at];
        if (record !== undefined) {
          reader.at += 1;
          this.wake();
          yield record;
        } else if (this.#hasEnded) return;
        else await this.change();
      }
    } finally {
      this.#readers.delete(reader);
      this.wake();
    }
  }

  /** Waits while a reader is far behind. */
  async room(signal: AbortSignal): Promise<void> {
    const isFull = (): boolean =>
      [...this.#readers].some(({ at }) => this.#records.length - at > maxBehind);
    while (isFull() && !signal.aborted) await this.change();
  }

  /** Lets everything that waits look again. */
  wake(): void {
    const wakers = this.#wakers;
    this.#wakers = [];
    for (const wake of wakers) wake();
  }

  /** Resolves when something has happened. */
  async change(): Promise<void> {
    await new Promise<void>((resolve) => this.#wakers.push(resolve));
  }
}

const noTotals = {
  totalInputTokens: 0,
  totalOutputTokens: 0,
  totalCacheReadTokens: 0,
  totalCacheCreationTokens: 0,
  totalCostUsd: 0,
  turnCount: 0,
};

/** The end of a run that has done nothing. */
export function endedBefore({ code, message, suggestion, retryable }: EngineError): EngineEvent {
  return { type: "error", code, message, suggestion, retryable, ...noTotals };
}
