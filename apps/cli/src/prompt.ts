import { createInterface } from "node:readline";
import { Writable, type Readable } from "node:stream";

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

/** Passes on what readline shows, unless it is muted: then nothing typed reaches the screen. */
function mutable(output: Writable): { stream: Writable; mute(muted: boolean): void } {
  let muted = false;
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      // Not a moment later: by then the muting would be that of the next text.
      if (!muted) output.write(chunk);
      done();
    },
  });
  return { stream, mute: (next) => (muted = next) };
}

export function createPrompt({ input, output, interrupt }: PromptStreams): Prompt {
  const isInteractive = input.isTTY === true && output.isTTY === true;
  const screen = mutable(output);
  const lines = createInterface(
    isInteractive ? { input, output: screen.stream, terminal: true, historySize: 0 } : { input, terminal: false },
  );
  const typed = lines[Symbol.asyncIterator]();
  const interrupted = new Promise<null>((resolve) => {
    interrupt.signal.addEventListener("abort", () => resolve(null), { once: true });
  });
  lines.on("SIGINT", () => interrupt.abort());

  async function nextLine(): Promise<string | null> {
    const next = await typed.next();
    return next.done === true ? null : next.value.trim();
  }

  return {
    write: (text) => void output.write(text),
    ask: async (question, { secret = false } = {}) => {
      if (interrupt.signal.aborted) return null;
      if (isInteractive) {
        // Readline redraws the line while one types, so it must know the question.
        lines.setPrompt(question);
        lines.prompt();
      } else output.write(question);
      screen.mute(secret);
      try {
        return await Promise.race([nextLine(), interrupted]);
      } finally {
        screen.mute(false);
        if (secret || !isInteractive) output.write("\n");
      }
    },
    close: () => lines.close(),
  };
}
