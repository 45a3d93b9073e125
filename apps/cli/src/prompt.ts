import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { isCancel, password, text } from "@clack/prompts";

/** The person who sets something up. Answers are null when input has ended, or was interrupted. */
export interface Prompt {
  write(text: string): void;
  /** The typed line, trimmed. A secret one is not shown. */
  ask(question: string, options?: { secret?: boolean }): Promise<string | null>;
  close(): void;
}

export interface PromptStreams {
  input: Readable & { isTTY?: boolean };
  output: Writable & { isTTY?: boolean };
  /** Aborted by Ctrl-C, which a terminal reports as a key. */
  interrupt: AbortController;
}

/** Asks with fields in a terminal, and line by line where input comes from a pipe. */
export function createPrompt(streams: PromptStreams): Prompt {
  const isInteractive = streams.input.isTTY === true && streams.output.isTTY === true;
  return isInteractive ? new TerminalPrompt(streams) : new PipePrompt(streams);
}

class TerminalPrompt implements Prompt {
  readonly #streams: PromptStreams;
  readonly #closing = new AbortController();

  constructor(streams: PromptStreams) {
    this.#streams = streams;
    streams.input.once("end", () => this.close());
  }

  write(shown: string): void {
    this.#streams.output.write(shown);
  }

  async ask(question: string, { secret = false } = {}): Promise<string | null> {
    const { input, output, interrupt } = this.#streams;
    const signal = AbortSignal.any([interrupt.signal, this.#closing.signal]);
    if (signal.aborted) return null;
    const options = { message: question, input, output, signal };
    const answer = await (secret ? password({ ...options, mask: "" }) : text(options));
    if (!isCancel(answer)) return (answer ?? "").trim();
    // It was not us who broke it off, but Ctrl-C or Escape.
    if (!signal.aborted) interrupt.abort();
    return null;
  }

  close(): void {
    this.#closing.abort();
  }
}

class PipePrompt implements Prompt {
  readonly #streams: PromptStreams;
  readonly #lines: ReturnType<typeof createInterface>;
  readonly #typed: AsyncIterator<string>;
  readonly #interrupted: Promise<null>;

  constructor(streams: PromptStreams) {
    this.#streams = streams;
    this.#lines = createInterface({ input: streams.input, terminal: false });
    this.#typed = this.#lines[Symbol.asyncIterator]();
    this.#interrupted = new Promise((resolve) => {
      streams.interrupt.signal.addEventListener("abort", () => resolve(null), { once: true });
    });
  }

  write(shown: string): void {
    this.#streams.output.write(shown);
  }

  async ask(question: string): Promise<string | null> {
    const { output, interrupt } = this.#streams;
    if (interrupt.signal.aborted) return null;
    output.write(question);
    const answer = await Promise.race([this.#nextLine(), this.#interrupted]);
    output.write("\n");
    return answer;
  }

  async #nextLine(): Promise<string | null> {
    const next = await this.#typed.next();
    return next.done === true ? null : next.value.trim();
  }

  close(): void {
    this.#lines.close();
  }
}
