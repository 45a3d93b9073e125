import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";

/** The person's side of a conversation. */
export interface Terminal {
  /**
   * Shows the prompt and resolves with the next line, or null at the end of input. When `signal` aborts
   * before there is one: undefined, and the next `ask` gets the line.
   */
  ask(prompt: string, signal?: AbortSignal): Promise<string | null | undefined>;
  /** Shows text at once. */
  write(text: string): void;
  /** Calls the listener at each Ctrl-C; the last listener set is the one called. */
  onInterrupt(listener: () => void): void;
  /** Ends input: every `ask` resolves with null from now on. */
  close(): void;
}

interface TerminalStreams {
  /** Where SIGINT comes from while input is no terminal. */
  signals?: { on(event: "SIGINT", listener: () => void): unknown };
  input: Readable & { isTTY?: boolean };
  output: Writable & { isTTY?: boolean };
}

/** Resolves when the signal aborts; never without one. */
export async function abortOf(signal: AbortSignal | undefined): Promise<undefined> {
  if (signal === undefined) return await new Promise(() => {});
  if (signal.aborted) return undefined;
  return await new Promise((resolve) =>
    signal.addEventListener("abort", () => resolve(undefined), { once: true }),
  );
}

/**
 * A terminal on streams. Lines typed ahead are kept. Ctrl-C is a key that readline reports in a
 * real terminal, and a signal of the process otherwise.
 */
export function createTerminal({ input, output, signals }: TerminalStreams): Terminal {
  const isInteractive = input.isTTY === true && output.isTTY === true;
  const lines = createInterface({
    input,
    output: isInteractive ? output : undefined,
    terminal: isInteractive,
  });
  const typed = lines[Symbol.asyncIterator]();
  let interrupt: (() => void) | undefined;
  let unread: Promise<string | null> | undefined;
  let ended = false;
  lines.on("close", () => (ended = true));
  lines.on("SIGINT", () => interrupt?.());
  signals?.on("SIGINT", () => interrupt?.());

  const nextLine = async (): Promise<string | null> => {
    const next = await typed.next();
    return next.done === true ? null : next.value;
  };

  return {
    async ask(prompt, signal) {
      if (signal?.aborted === true) return undefined;
      // Readline redraws its prompt's line, so only the last line of the prompt may be in it.
      const lastLine = prompt.slice(prompt.lastIndexOf("\n") + 1);
      output.write(isInteractive ? prompt.slice(0, prompt.length - lastLine.length) : prompt);
      if (isInteractive && !ended) {
        lines.setPrompt(lastLine);
        lines.prompt();
      }
      const line = (unread ??= nextLine());
      const answered = await Promise.race([line, abortOf(signal)]);
      if (answered !== undefined) unread = undefined;
      return answered;
    },
    write: (text) => void output.write(text),
    onInterrupt: (listener) => (interrupt = listener),
    close: () => lines.close(),
  };
}
