import { parseArgs } from "node:util";
import { createEnvReader, type Env } from "@larkline/process/config";
import type { ParseResult } from "@larkline/protocol";
import {
  deadline,
  systemClock,
  systemRandom,
  withDeadline,
  type Clock,
} from "@larkline/protocol/clock";
import { type Client, ConnectionError, createClient, RequestError, type Run } from "@larkline/sdk";
import {
  answerClosing,
  answerOpening,
  AnswerView,
  type Language,
  languages,
  openingText,
  printable,
  chatTexts,
  type Texts,
} from "./answer-view.ts";
import { languageOf } from "../config.ts";
import { watchApprovals } from "./approvals.ts";
import { abortOf, createTerminal, type Terminal } from "./terminal.ts";

/** How long requests are repeated in the middle of a conversation while there is no contact. */
const retryForMs = 15_000;

/** `larkline chat`: a conversation in the terminal, over the HTTP API of ingress. Ends the process. */
export async function runChat(args: readonly string[], env: Env): Promise<never> {
  if (args.some((word) => word === "--help" || word === "-h")) {
    process.stdout.write(`${usageIn(args, env)}\n`, () => process.exit(0));
    return await new Promise(() => {});
  }
  const loaded = loadConfig(args, env);
  if (!loaded.ok) {
    process.stderr.write(`${loaded.error}\n\n${usageIn(args, env)}\n`);
    process.exit(2);
  }
  const { language, sessionId, ...access } = loaded.value;
  const terminal = createTerminal({
    input: process.stdin,
    output: process.stdout,
    signals: process,
  });

  // The reader of our output has left.
  process.stdout.on("error", () => process.exit(0));

  await runConversation({
    clock: systemClock,
    terminal,
    client: createClient({ ...access, retryForMs }),
    url: access.url,
    sessionId,
    texts: chatTexts[language],
  });
  process.exit(0);
}

const quitWords = new Set(["quit", "exit", "q"]);

interface ConversationParts {
  clock: Clock;
  terminal: Terminal;
  client: Client;
  /** Of the ingress that the client speaks to. */
  url: string;
  sessionId: string;
  texts: Texts;
}

/**
 * Asks and answers until the person leaves: by a quit word, the end of input, or Ctrl-C. Ctrl-C
 * during an answer only cancels the answer.
 */
export async function runConversation(parts: ConversationParts): Promise<void> {
  const { terminal, texts, url } = parts;
  let running: AbortController | undefined;
  let hadContact = false;
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
    terminal.write(answerOpening(texts));
    // The SDK would try for a while, as it does in the middle of a conversation.
    hadContact ||= await isListening(parts);
    if (hadContact) await showAnswer(parts, message, running.signal);
    else terminal.write(`\n${texts.error(texts.unreachable(url))}${answerClosing()}`);
    running = undefined;
  }
  terminal.write(`${texts.goodbye}\n`);
  terminal.close();
}

/** Whether a server answers at all, whatever it says. */
async function isListening({ url, clock }: ConversationParts): Promise<boolean> {
  try {
    const response = await fetch(`${url.replace(/\/+$/, "")}/health`, {
      signal: deadline(clock, retryForMs),
    });
    await response.body?.cancel();
    return true;
  } catch {
    return false;
  }
}

/** How long Ctrl-C waits for the server to confirm that the run ends. */
const cancelPatienceMs = 5_000;

/** Shows one answer. Resolves when it is complete, failed or cancelled. */
async function showAnswer(
  parts: ConversationParts,
  message: string,
  interrupt: AbortSignal,
): Promise<void> {
  const { clock, terminal, texts } = parts;
  // Ctrl-C ends requests only after the cancel: the run's id may still be on its way.
  const stop = new AbortController();
  let answer: Run | string | undefined;
  const cancelling = abortOf(interrupt).then(async () => {
    const isConfirmed = typeof answer !== "object" || (await isCancelled(answer, clock));
    stop.abort();
    return isConfirmed;
  });
  try {
    if (!interrupt.aborted) answer = await answerTo(parts, message, stop.signal);
    if (typeof answer === "string") terminal.write(`${printable(answer)}${answerClosing()}`);
    else if (answer !== undefined) await showRun(parts, answer, interrupt);
  } catch (error) {
    const why = await failureText(parts, error, answer);
    if (!interrupt.aborted) terminal.write(`\n${texts.error(why)}${answerClosing()}`);
  }
  if (!interrupt.aborted) return;
  const ending = (await cancelling) ? texts.cancelled : texts.error(texts.mayGoOn);
  terminal.write(`\n${ending}${answerClosing()}`);
}

/** The run that answers a message; an order such as `/status` may be answered at once. */
async function answerTo(
  { client, sessionId }: ConversationParts,
  message: string,
  signal: AbortSignal,
): Promise<Run | string> {
  const options = { session: sessionId, detach: true, signal };
  if (/^[/／]/.test(message)) {
    try {
      return await client.command(message, options);
    } catch (error) {
      if (!(error instanceof RequestError && error.code === "no_command")) throw error;
    }
  }
  return client.run(message, options);
}

/** Shows a run while it works, and asks the person what it waits for. */
async function showRun(parts: ConversationParts, run: Run, interrupt: AbortSignal): Promise<void> {
  const { terminal, texts } = parts;
  const view = new AnswerView(texts);
  const approvals = watchApprovals(parts, run, interrupt);
  try {
    for await (const event of run.stream()) {
      if (interrupt.aborted) continue;
      approvals.note(event);
      terminal.write(view.draw(event));
    }
  } finally {
    await approvals.close();
  }
}

/** Stops a run; false when it may continue. */
async function isCancelled(run: Run, clock: Clock): Promise<boolean> {
  return await withDeadline(clock, run.cancel(), cancelPatienceMs).then(
    () => true,
    () => false,
  );
}

/** What went wrong with the request, and what to do about it. */
async function failureText(
  { url, texts }: ConversationParts,
  error: unknown,
  answer: Run | string | undefined,
) {
  if (error instanceof RequestError) {
    return error.status === 401
      ? texts.tokenRefused
      : texts.refused(error.status, printable(error.message));
  }
  if (!(error instanceof ConnectionError)) {
    return error instanceof Error ? error.message : String(error);
  }
  const isStarted =
    typeof answer === "object" && (await answer.id().catch(() => undefined)) !== undefined;
  return isStarted ? texts.cutOff : texts.unreachable(url);
}

interface ChatConfig {
  url: string;
  language: Language;
  sessionId: string;
  token?: string;
}

const usage: Readonly<Record<Language, string>> = {
  zh: `npm run chat -- [--url http://127.0.0.1:8000] [--lang zh|en] [--session id]

  --url      ingress 的地址
  --lang     本程序自身文字的语言，默认取终端的语言
  --session  继续这个会话（字母、数字、"-" 和 "_"）；默认新建
  --help     显示本说明

输入 quit 退出，Ctrl-C 取消正在进行的回答，/help 列出命令。API_TOKEN（若有）作为 bearer token 发送；
它与 INGRESS_PORT 也可写在 .env 中。`,
  en: `npm run chat -- [--url http://127.0.0.1:8000] [--lang zh|en] [--session id]

  --url      address of the ingress
  --lang     language of the client's own texts; default: the terminal's
  --session  continue this conversation (letters, digits, "-" and "_"); default: a new one
  --help     print this

Enter quit to leave; Ctrl-C cancels the answer under way; /help lists the commands. API_TOKEN is sent as bearer token
when it is set; it and INGRESS_PORT can be in .env.`,
};

/** In the language of `--lang`, if that is one. */
function usageIn(args: readonly string[], env: Env): string {
  const given = /(?:^|\s)--lang[= ](\w+)/.exec(args.join(" "))?.[1];
  return usage[languages.find((one) => one === given) ?? languageOf(env)];
}

interface Flags {
  url: string | undefined;
  lang: string | undefined;
  session: string | undefined;
}

function readFlags(args: readonly string[]): ParseResult<Flags> {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        url: { type: "string" },
        lang: { type: "string" },
        session: { type: "string" },
      },
    });
    return { ok: true, value: { url: values.url, lang: values.lang, session: values.session } };
  } catch (error) {
    return { ok: false, error: error instanceof Error ? error.message : String(error) };
  }
}

/** Reads the command line and the environment; every problem is reported at once. */
export function loadConfig(args: readonly string[], env: Env): ParseResult<ChatConfig> {
  const flags = readFlags(args);
  if (!flags.ok) return flags;
  const { lang = languageOf(env), session = systemRandom.uuid() } = flags.value;
  const reader = createEnvReader(env);
  const url =
    flags.value.url ?? `http://127.0.0.1:${reader.port("INGRESS_PORT", { default: 8_000 })}`;
  const token = reader.secret("API_TOKEN");
  const language = languages.find((one) => one === lang) ?? languageOf(env);
  if (language !== lang) reader.problem(`--lang must be one of ${languages.join(", ")}.`);
  if (!URL.canParse(url) || !/^https?:/.test(url)) {
    reader.problem("--url must be an http or https address.");
  }
  if (!/^[\w-]{1,64}$/.test(session)) {
    reader.problem('--session must be 1 to 64 letters, digits, "-" or "_".');
  }
  return reader.finish({
    url,
    language,
    sessionId: session,
    ...(token === undefined ? {} : { token }),
  });
}
