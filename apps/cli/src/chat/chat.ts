import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { parseArgs } from "node:util";
import { createEnvReader, type Env } from "@larkline/process/config";
import { type ParseResult, systemClock, systemRandom, type Clock } from "@larkline/protocol";
import {
  answerClosing,
  answerOpening,
  AnswerView,
  type Language,
  languages,
  openingText,
  chatTexts,
  type Texts,
} from "./answer-view.ts";
import { type ApprovalClient, createApprovalClient, watchApprovals } from "./approvals.ts";
import { type ChatClient, createChatClient } from "./chat-client.ts";

/** `larkline chat`: a conversation in the terminal, over the HTTP API of ingress. Ends the process. */
export async function runChat(args: readonly string[], env: Env): Promise<never> {
  const loaded = loadConfig(args, env);
  if (!loaded.ok) {
    process.stderr.write(`${loaded.error}\n\n${usage}\n`);
    process.exit(2);
  }
  const { language, ...connection } = loaded.value;
  const terminal = createTerminal({ input: process.stdin, output: process.stdout, signals: process });
  const client = createChatClient({ ...connection, clock: systemClock, texts: chatTexts[language] });
  const approvals = createApprovalClient(connection);

  // The reader of our output has left.
  process.stdout.on("error", () => process.exit(0));

  await runConversation({ clock: systemClock, terminal, client, approvals, texts: chatTexts[language] });
  process.exit(0);
}

const quitWords = new Set(["quit", "exit", "q"]);

interface ConversationParts {
  clock: Clock;
  terminal: Terminal;
  client: ChatClient;
  approvals: ApprovalClient;
  texts: Texts;
}

/** Shows one answer. Resolves when it is complete, failed or cancelled. */
async function showAnswer(parts: ConversationParts, message: string, signal: AbortSignal) {
  const { terminal, client, approvals, texts, clock } = parts;
  terminal.write(answerOpening(texts));
  const watch = watchApprovals({ terminal, approvals, texts, clock }, signal);
  const view = new AnswerView(texts);
  let failed = false;
  for await (const frame of client.send(message, signal)) {
    failed = frame.type === "error";
    watch.note(frame);
    terminal.write(view.draw(frame));
  }
  await watch.close();
  if (signal.aborted && !failed) terminal.write(`\n${texts.cancelled}${answerClosing()}`);
}

/**
 * Asks and answers until the person leaves: by a quit word, the end of input, or Ctrl-C. Ctrl-C
 * during an answer only cancels the answer.
 */
export async function runConversation(parts: ConversationParts): Promise<void> {
  const { terminal, texts } = parts;
  let running: AbortController | undefined;
  terminal.onInterrupt(() => {
    if (running === undefined || running.signal.aborted) terminal.close();
    else running.abort();
  });
  terminal.write(openingText(texts));
  for (;;) {
    const line = await terminal.ask(`\n${texts.you}`);
    const message = line?.trim() ?? "quit";
    if (quitWords.has(message.toLowerCase())) break;
    if (message === "") continue;
    running = new AbortController();
    await showAnswer(parts, message, running.signal);
    running = undefined;
  }
  terminal.write(`${texts.goodbye}\n`);
  terminal.close();
}

interface ChatConfig {
  url: string;
  language: Language;
  sessionId: string;
  token?: string;
}

const usage = `npm run chat -- [--url http://127.0.0.1:8000] [--lang zh|en] [--session id]

  --url      address of the ingress
  --lang     language of the client's own texts, default zh
  --session  continue this conversation (letters, digits, "-" and "_"); default: a new one

API_TOKEN is sent as bearer token when it is set.`;

interface Flags {
  url: string;
  lang: string;
  session: string | undefined;
}

function readFlags(args: readonly string[]): ParseResult<Flags> {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        url: { type: "string", default: "http://127.0.0.1:8000" },
        lang: { type: "string", default: "zh" },
        session: { type: "string" },
      },
    });
    return { ok: true, value: { ...values, session: values.session } };
  } catch (error) {
    return { ok: false, error: error instanceof Error ? error.message : String(error) };
  }
}

/** Reads the command line and the environment; every problem is reported at once. */
export function loadConfig(args: readonly string[], env: Env): ParseResult<ChatConfig> {
  const flags = readFlags(args);
  if (!flags.ok) return flags;
  const { url, lang, session = systemRandom.uuid() } = flags.value;
  const reader = createEnvReader(env);
  const token = reader.secret("API_TOKEN");
  const language = languages.find((one) => one === lang) ?? "zh";
  if (language !== lang) reader.problem(`--lang must be one of ${languages.join(", ")}.`);
  if (!URL.canParse(url) || !/^https?:/.test(url)) reader.problem("--url must be an http or https address.");
  if (!/^[\w-]{1,64}$/.test(session)) reader.problem('--session must be 1 to 64 letters, digits, "-" or "_".');
  return reader.finish({ url, language, sessionId: session, ...(token === undefined ? {} : { token }) });
}

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
async function abortOf(signal: AbortSignal | undefined): Promise<undefined> {
  if (signal === undefined) return await new Promise(() => {});
  return await new Promise((resolve) => signal.addEventListener("abort", () => resolve(undefined), { once: true }));
}

/**
 * A terminal on streams. Lines typed ahead are kept. Ctrl-C is a key that readline reports in a
 * real terminal, and a signal of the process otherwise.
 */
function createTerminal({ input, output, signals }: TerminalStreams): Terminal {
  const isInteractive = input.isTTY === true && output.isTTY === true;
  const lines = createInterface({ input, output: isInteractive ? output : undefined, terminal: isInteractive });
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
