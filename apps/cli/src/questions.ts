import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { isCancel, password, text } from "@clack/prompts";
import type { Env } from "@larkline/process/config";
import type { SetupOptions } from "./command-line.ts";
import { type Bilingual, domainProblem, type EnvFile, transports } from "./config.ts";

/** Values to be written, by variable. */
export type Answers = Record<string, string>;

/** Why there is no answer: the person left, or a value is missing or wrong. */
export type NoAnswer = { kind: "left" } | { kind: "wrong"; text: Bilingual };

type Answered = { ok: true; answers: Answers } | { ok: false; why: NoAnswer };

interface Question {
  name: string;
  ask: Bilingual;
  secret?: true;
  required?: true;
  default?: string;
  /** What is wrong with a value. */
  check?: (value: string) => Bilingual | undefined;
  /** Asked only then. */
  when?: (answers: Answers) => boolean;
}

function checkAppId(value: string): Bilingual | undefined {
  if (/^cli_[0-9a-fA-F]{16}$/.test(value)) return undefined;
  return {
    zh: "App ID 应为 cli_ 加 16 位十六进制数字。",
    en: "An app id is cli_ and 16 hexadecimal digits.",
  };
}

function checkDomain(value: string): Bilingual | undefined {
  if (domainProblem(value) === undefined) return undefined;
  return {
    zh: "应为 feishu、lark 或 http(s) 地址。",
    en: "It must be feishu, lark or an http(s) address.",
  };
}

function checkTransport(value: string): Bilingual | undefined {
  if (transports.some((one) => one === value)) return undefined;
  const names = transports.join(", ");
  return { zh: `应为 ${names} 之一。`, en: `It must be one of ${names}.` };
}

function byWebhook(answers: Answers): boolean {
  return answers["FEISHU_TRANSPORT"] !== "websocket";
}

export const feishuQuestions: readonly Question[] = [
  { name: "FEISHU_APP_ID", ask: { zh: "App ID", en: "App ID" }, required: true, check: checkAppId },
  {
    name: "FEISHU_APP_SECRET",
    ask: { zh: "App Secret", en: "App Secret" },
    required: true,
    secret: true,
  },
  {
    name: "FEISHU_DOMAIN",
    ask: { zh: "feishu、lark 或地址", en: "feishu, lark or an address" },
    default: "feishu",
    check: checkDomain,
  },
  {
    name: "FEISHU_TRANSPORT",
    ask: {
      zh: "事件接收方式：websocket、webhook 或 both",
      en: "Events by websocket, webhook or both",
    },
    default: "websocket",
    check: checkTransport,
  },
  {
    name: "FEISHU_ENCRYPT_KEY",
    ask: { zh: "Encrypt Key（可空）", en: "Encrypt Key (may be empty)" },
    secret: true,
    when: byWebhook,
  },
  {
    name: "FEISHU_VERIFICATION_TOKEN",
    ask: { zh: "Verification Token（可空）", en: "Verification Token (may be empty)" },
    secret: true,
    when: byWebhook,
  },
];

export const modelQuestions: readonly Question[] = [
  {
    name: "ANTHROPIC_API_KEY",
    ask: { zh: "Anthropic 密钥（可空）", en: "Anthropic key (may be empty)" },
    secret: true,
  },
  {
    name: "OPENAI_API_KEY",
    ask: { zh: "OpenAI 密钥（可空）", en: "OpenAI key (may be empty)" },
    secret: true,
  },
];

export interface Interview {
  options: SetupOptions;
  /** Of the process, without the file. */
  env: Env;
  file: EnvFile;
  prompt: Prompt;
}

function currentValue(question: Question, current: string | undefined): string {
  if (current === undefined || current === "") return "";
  return question.secret === true ? " [****]" : ` [${current}]`;
}

async function typedAnswer(question: Question, interview: Interview, current: string | undefined) {
  const { prompt, options } = interview;
  for (;;) {
    const label = `${question.ask[options.language]}${currentValue(question, current)}: `;
    const typed = await prompt.ask(label, question.secret === true ? { secret: true } : {});
    if (typed === null) return null;
    const value = typed === "" ? (current ?? "") : typed;
    const wrong = value === "" ? undefined : question.check?.(value);
    if (wrong !== undefined) prompt.write(`${wrong[options.language]}\n`);
    else if (value !== "" || question.required !== true) return value;
  }
}

function given({ name }: Question, { options, env }: Interview): string | undefined {
  return options.answers[name] || env[name]?.trim() || undefined;
}

function missing(name: string): NoAnswer {
  return { kind: "wrong", text: { zh: `没有设置 ${name}。`, en: `${name} is not set.` } };
}

function wrongValue(name: string, { zh, en }: Bilingual): NoAnswer {
  return { kind: "wrong", text: { zh: `${name}：${zh}`, en: `${name}: ${en}` } };
}

/** Without a person: what was given counts, then what the file has, then the default. */
function givenAnswer(question: Question, interview: Interview): string | NoAnswer {
  const { name } = question;
  const value = given(question, interview) ?? interview.file.values[name] ?? question.default ?? "";
  if (value === "") return question.required === true ? missing(name) : "";
  const wrong = question.check?.(value);
  return wrong === undefined ? value : wrongValue(name, wrong);
}

async function answerTo(question: Question, interview: Interview): Promise<string | NoAnswer> {
  if (interview.options.yes) return givenAnswer(question, interview);
  const current =
    given(question, interview) ?? interview.file.values[question.name] ?? question.default;
  return (await typedAnswer(question, interview, current)) ?? { kind: "left" };
}

/** Asks the questions in order. Values that are empty are left out. */
export async function askAll(
  questions: readonly Question[],
  interview: Interview,
): Promise<Answered> {
  const answers: Answers = {};
  for (const question of questions) {
    if (question.when?.(answers) === false) continue;
    const answer = await answerTo(question, interview);
    if (typeof answer !== "string") return { ok: false, why: answer };
    if (answer !== "") answers[question.name] = answer;
  }
  const needsSecret = "FEISHU_TRANSPORT" in answers && byWebhook(answers);
  if (needsSecret && !answers["FEISHU_ENCRYPT_KEY"] && !answers["FEISHU_VERIFICATION_TOKEN"]) {
    return { ok: false, why: missing("FEISHU_ENCRYPT_KEY / FEISHU_VERIFICATION_TOKEN") };
  }
  const model = interview.options.answers["MODEL"];
  return { ok: true, answers: model === undefined ? answers : { ...answers, MODEL: model } };
}

/** The names whose value in the file would be replaced by another one. */
export function replaced(answers: Answers, file: EnvFile): string[] {
  return Object.entries(answers).flatMap(([name, value]) => {
    const before = file.values[name];
    return before === undefined || before === "" || before === value ? [] : [name];
  });
}

/** Whether the person, or `--overwrite`, allows these names to be replaced. Null: the person left. */
export async function mayReplace(
  names: readonly string[],
  interview: Interview,
): Promise<boolean | null> {
  const { options, prompt, file } = interview;
  if (names.length === 0) return true;
  if (options.yes) return options.overwrite;
  const question: Bilingual = {
    zh: `${file.path} 中已设置 ${names.join(", ")}，要替换吗？[y/N] `,
    en: `${file.path} sets ${names.join(", ")} already. Replace? [y/N] `,
  };
  const answer = await prompt.ask(question[options.language]);
  return answer === null ? null : /^(?:y|yes|是)$/i.test(answer);
}

/** The person who sets something up. Answers are null when input has ended, or was interrupted. */
export interface Prompt {
  write(text: string): void;
  /** The typed line, trimmed. A secret one is not shown. */
  ask(question: string, options?: { secret?: boolean }): Promise<string | null>;
  close(): void;
}

interface PromptStreams {
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
